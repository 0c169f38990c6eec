"""The choice where validation tasks are done elsewhere equals the choice with all rows in one place."""

from dataclasses import replace

import numpy as np
import pytest

from mixtune.choice import RemoteTasks, choose
from mixtune.moments import Origin, Rows, Sample


def test_remote_tasks_equal_those_with_rows():
    """Sums of residuals instead of rows."""
    rng = np.random.default_rng(5)
    truth = rng.standard_normal(3)

    def draw(count):
        X = rng.standard_normal((count, 3))
        return Rows(X, X @ (truth + 0.3 * rng.standard_normal(3)) + rng.standard_normal(count))

    focal, sources = draw(18), [draw(int(count)) for count in rng.integers(20, 90, 9)]
    origin = Origin.zero(3)
    remote = RemoteTasks(focal, [origin.moments(rows) for rows in sources], origin)
    near = [remote.mean.rows(rows) for rows in (focal, *sources)]
    whole = choose(Sample.of(near[0]), [Sample.of(rows) for rows in near[1:]])
    # The choice draws in units of the targets' spread.
    divided = [Rows(rows.X, rows.y / remote.size) for rows in near[1:]]
    plan = remote.plan({k: remote.rank(rows) for k, rows in enumerate(divided)})
    tasks = []
    for source, places in plan.tasks:
        rows = divided[source]
        order = remote.order(rows, places)
        part = origin.moments(rows.part(order[: plan.rows]))
        made = remote.play(rows, order, plan.rows, plan.spare, *remote.candidates(source, part))
        tasks.append(replace(made, source=source))
    found = remote.choose(plan, tasks)
    np.testing.assert_allclose(found.head, whole.head, rtol=1e-10)
    np.testing.assert_allclose(found.shares, whole.shares, atol=1e-12)
    np.testing.assert_allclose(found.task_errors, whole.task_errors, rtol=1e-9)
    assert found.inflation == pytest.approx(whole.inflation, rel=1e-9)
    np.testing.assert_allclose(found.play_gains, whole.play_gains, rtol=1e-9)
