"""Verdicts from few runs: what they confirm, contradict and leave open, against simulation."""

import numpy as np
import pytest

from mixtune_paper import judge_share, judge_sign, judge_value


def simulated(judge, *, mean, spread, runs, trials=3000, seed=0):
    """Shares of confirmed and contradicted verdicts over many studies, and the mean power they report."""
    draws = np.random.default_rng(seed).normal(mean, spread, (trials, runs))
    verdicts = [judge(values) for values in draws]
    confirmed = np.mean([verdict.holds is True for verdict in verdicts])
    contradicted = np.mean([verdict.holds is False for verdict in verdicts])
    return confirmed, contradicted, np.mean([verdict.power for verdict in verdicts])


def test_a_true_value_is_confirmed_as_often_as_the_power_says():
    confirmed, contradicted, power = simulated(
        lambda v: judge_value(v, 0.09, margin=0.02), mean=0.09, spread=0.02, runs=40
    )
    assert confirmed > 0.95
    assert contradicted < 0.02
    assert power == pytest.approx(confirmed, abs=0.05)


@pytest.mark.parametrize(("mean", "contradictions"), [(0.07, 0.02), (0.11, 0.02), (0.017, 1.0)])
def test_a_value_at_the_margin_or_beyond_is_rarely_confirmed(mean, contradictions):
    confirmed, contradicted, _ = simulated(lambda v: judge_value(v, 0.09, margin=0.02), mean=mean, spread=0.02, runs=40)
    assert confirmed < 0.04
    assert contradicted == pytest.approx(contradictions, abs=0.015)


def test_few_runs_leave_a_value_open():
    confirmed, contradicted, power = simulated(
        lambda v: judge_value(v, 0.09, margin=0.02), mean=0.09, spread=0.04, runs=3
    )
    assert confirmed < 0.05
    assert contradicted == 0
    assert power == 0


def test_the_error_of_the_target_counts():
    values = np.random.default_rng(1).normal(0.09, 0.03, 100)
    alone, both = (judge_value(values, 0.09, margin=0.01, runs=runs) for runs in (0, 100))
    assert both.half == pytest.approx(alone.half * np.sqrt(2))
    assert both.power < alone.power


def test_signs():
    confirmed, contradicted, power = simulated(lambda v: judge_sign(v, effect=0.05), mean=0.05, spread=0.05, runs=20)
    assert confirmed > 0.9
    assert contradicted < 0.001
    assert power == pytest.approx(confirmed, abs=0.06)
    assert simulated(lambda v: judge_sign(v, effect=0.05), mean=0.0, spread=0.05, runs=20)[0] < 0.04
    assert simulated(lambda v: judge_sign(v, effect=0.05), mean=-0.05, spread=0.05, runs=20)[1] > 0.9


def test_a_true_value_is_hardly_ever_contradicted():
    """Twenty comparisons a table: few of them may be contradicted by chance."""
    for runs in (5, 20):
        contradicted = simulated(lambda v: judge_value(v, 0.09, margin=0.01), mean=0.09, spread=0.02, runs=runs)[1]
        assert contradicted < 0.015


def test_one_run_is_not_judged():
    for verdict in (judge_value(np.ones(1), 1.0, margin=0.1), judge_sign(np.ones(1), effect=1.0)):
        assert verdict.holds is None
        assert verdict.power == 0.0
        assert verdict.word == "not judged"


def test_shares():
    assert judge_share(np.ones(28), 0.9).holds is None
    assert judge_share(np.ones(29), 0.9).holds
    assert judge_share(np.append(np.ones(29), 0), 0.9).holds is None
    assert judge_share(np.append(np.ones(60), 0), 0.9).holds
    assert judge_share(np.append(np.ones(3), [0, 0, 0]), 0.9).holds is False
    assert (judge_share(np.ones(28), 0.9).power, judge_share(np.ones(29), 0.9).power) == (0.0, 1.0)
