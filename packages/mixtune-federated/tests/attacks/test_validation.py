"""The self-tuned choice at level 1: draws of rows and leverages that would single out people."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cryptography")

from forging import candidates, forged, with_candidates
from mixtune_federated import Policy, RefusedError

COLUMNS = 3


@pytest.fixture
def asked(consortium):
    """Sites that have answered until the candidates, and the requests for parts and plays."""
    group = consortium(level=1, members=5, columns=COLUMNS, method="tuned")
    rng = np.random.default_rng(0)
    for name in group.data:
        table = group.data[name]
        female, smoker = rng.permutation(60) < 30, rng.permutation(60) < 30
        group.data[name] = {**table, "x0": female * 1.0, "x1": smoker * 1.0}
    group.data["m0"] = {name: np.asarray(values)[:20] for name, values in group.data["m0"].items()}
    policy = Policy(least_cell=2)
    sites, coordinator, messages, requests = group.sites(policy), group.coordinator(), [], []
    for _ in range(4):
        requests.append(coordinator.ask(messages))
        messages += [site.answer(requests[-1]) for site in sites.values()] if len(requests) < 4 else []
    return group, sites, requests


def other_draw(group, request):
    """The same places of rows but for two, which change sides."""
    _, arrays = request.open(group.keys["m0"])
    places = arrays["0.0"].copy()
    places[[0, 45]] = places[[45, 0]]
    return {"0.0": places}


def test_rows_for_plays_are_those_of_the_parts(asked):
    group, sites, requests = asked
    with pytest.raises(RefusedError, match="another draw of rows than before") as caught:
        sites["m1"].answer(forged(group, requests[3], arrays=other_draw(group, requests[3])))
    assert caught.value.code == "second-draw"
    assert sites["m1"].answer(requests[3])


@pytest.mark.parametrize("change", [{"rows": 19}, {"rows": 21}, {"size": 1.0}])
def test_rows_for_plays_are_as_many_as_for_parts(asked, change):
    group, sites, requests = asked
    with pytest.raises(RefusedError, match="another draw of rows than before"):
        sites["m1"].answer(forged(group, requests[3], spec=change))


def test_one_draw_serves_all_runs_and_studies(asked):
    """Also where the policy allows another run, and whatever comes first."""
    group, sites, requests = asked
    site = sites["m1"]
    site.policy = Policy(one_release=False, least_cell=2)
    for request in (requests[2], requests[3]):
        with pytest.raises(RefusedError, match="another draw"):
            site.answer(forged(group, request, arrays=other_draw(group, request)))
    fresh = group.site("m2", site.policy)
    assert fresh.answer(requests[3])
    places = {"1.0": np.roll(requests[2].open(group.keys["m0"])[1]["1.0"], 1)}
    with pytest.raises(RefusedError, match="another draw"):
        fresh.answer(forged(group, requests[2], arrays=places))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_one_mean_serves_all_steps_and_runs(asked, step):
    """Sums about many points would tell rows apart: norms and cubes are no sums of products."""
    group, sites, requests = asked
    site = sites["m1"]
    site.policy = Policy(one_release=False, least_cell=2)
    other = requests[step].open(group.keys["m0"])[1]["shift"] + 0.1
    with pytest.raises(RefusedError, match="another common mean than before"):
        site.answer(forged(group, requests[step], arrays={"shift": other}))
    # The same question again, in another run, says nothing more.
    if step == 1:
        assert site.answer(forged(group, requests[step]))


def test_sets_of_which_sums_and_differences_leave_few_people(consortium):
    """Two training sets that share one row and leave one out: their sum less that of all is of these two."""
    group = consortium(level=1, members=5, columns=2, method="tuned")
    group.data["m0"] = {name: np.asarray(values)[:30] for name, values in group.data["m0"].items()}
    sites, coordinator, messages = group.sites(), group.coordinator(), []
    for _ in range(3):
        request = coordinator.ask(messages)
        messages += [site.answer(request) for site in sites.values()] if request.step < 3 else []
    _, arrays = request.open(group.keys["m0"])
    first = np.arange(30)
    second = np.r_[np.arange(30, 59), 0]
    changed = {name: first if name == "0.0" else second for name in arrays if name.startswith("0.")}
    assert len(changed) == 2
    with pytest.raises(RefusedError, match="makes up 1 of a combination"):
        sites["m1"].answer(forged(group, request, arrays=changed))
    assert sites["m1"].answer(request)


def quadratic(**entries):
    """A quadratic function of three columns: its constant, linear, square and crossed coefficients."""
    names = ["one", "x0", "x1", "x2", "x0x0", "x1x1", "x2x2", "x0x1", "x0x2", "x1x2"]
    return np.array([entries.get(name, 0.0) for name in names])


LEVERAGES = {
    "half of a product of two columns": lambda a, b: [quadratic(one=a * b / 2, x0=b / 2, x1=a / 2, x0x1=0.5)],
    "a little of one": lambda a, b: [quadratic(one=a * b * 1e-3, x0=b * 1e-3, x1=a * 1e-3, x0x1=1e-3)],
    "half of a product of deviations": [quadratic(x0x1=0.5)],
    "less than nothing": [quadratic(one=-0.1)],
    "a linear function": [quadratic(x0=0.3)],
    "three columns": [quadratic(x0x1=0.3, x0x2=0.3, x1x2=0.3)],
    "more than the rows have": [quadratic(x0x0=0.9)],
    "NaN": [quadratic(one=np.nan)],
}


@pytest.mark.parametrize("attack", list(LEVERAGES))
def test_leverages_of_no_ridge_regression_are_refused(asked, attack):
    """Residuals are divided by one less the leverage, so that a candidate could weigh a single person's."""
    group, sites, requests = asked
    sent, attacks = candidates(group, requests[3], "m1"), LEVERAGES[attack]
    if callable(attacks):
        # Requests are about the mean of all rows: these are products of the columns themselves.
        attacks = attacks(*requests[3].open(group.keys["m0"])[1]["shift"][:2])
    for place in [name for name in sent if name.startswith("quadratics")]:
        sent[place] = np.vstack([*attacks, sent[place][len(attacks) :]])
    with pytest.raises(RefusedError, match="leverages that are none"):
        sites["m1"].answer(with_candidates(group, requests[3], "m1", sent))


def test_leverages_that_differ_for_one_person_are_refused(consortium):
    """Two candidates that could each be of a ridge regression, and differ for the only female smoker."""
    group = consortium(level=1, members=5, columns=2, method="tuned")
    female, smoker = np.arange(60) < 30, (np.arange(60) >= 30) | (np.arange(60) == 3)
    for name in group.data:
        group.data[name] = {**group.data[name], "x0": female * 1.0, "x1": smoker * 1.0}
    sites, coordinator = group.sites(Policy(least_cell=5, features_per_row=1.0)), group.coordinator()
    coordinator.policy = Policy(least_cell=0)
    with pytest.raises(RefusedError, match="where these cross"):
        sites["m1"].answer(coordinator.ask())
    from mixtune_federated._site import check_leverages

    X = np.column_stack([female, smoker]) * 1.0
    inverse = np.linalg.inv(np.c_[X, np.ones(60)].T @ np.c_[X, np.ones(60)]) / 2

    def function(extra):
        M = inverse.copy()
        M[0, 1] += extra / 2
        M[1, 0] += extra / 2
        return np.array([M[2, 2], 2 * M[0, 2], 2 * M[1, 2], M[0, 0], M[1, 1], 2 * M[0, 1]])

    check_leverages(Policy(), X, np.stack([function(0.0), 0.5 * function(0.0)]))
    with pytest.raises(RefusedError, match="leverages that are none"):
        check_leverages(Policy(), X, np.stack([function(0.0), function(1e-4)]))
