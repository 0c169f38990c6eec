"""Weighting rules: on the simplex for any scale, with the limits the paper states."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune import (
    Domains,
    EqualWeights,
    Identity,
    Moments,
    PredictiveWeights,
    RandomFeatures,
    WassersteinWeights,
    wasserstein_distance,
)
from mixtune.errors import DataError, ParameterError
from mixtune.weights import Diameter, GivenWeights, TransportDistance, normalise, predictive_shares
from problems import make_rows

scores = st.lists(st.floats(0, 1e300, allow_nan=False), min_size=1, max_size=8).map(np.array)
settings_ = st.floats(0, 1e300, allow_nan=False)


def on_simplex(values, focal):
    return np.all(np.isfinite(values)) and np.all(values >= 0) and abs(values.sum() - 1) < 1e-9 and values[focal] > 0


@given(scores, settings_, st.integers(0, 7))
def test_predictive_never_overflows(s, sharing, focal):
    focal = focal % len(s)
    assert on_simplex(normalise(predictive_shares(s, focal, sharing), focal), focal)


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=8), settings_, settings_, st.integers(0, 7))
def test_wasserstein_never_overflows(places, temperature, threshold, focal):
    """Of domains of one row each, whose distances are those of the rows."""
    focal = focal % len(places)
    rule = WassersteinWeights(temperature, threshold, rescale=False, floor=False)
    weights = rule.weigh_clouds([[[place]] for place in places], focal=focal)
    assert on_simplex(weights.values, focal)
    assert np.all(weights.values[~weights.admitted] == 0)
    assert weights.admitted[focal]


@given(scores.filter(lambda s: s.max() < 1e100), st.floats(1e-3, 1e3), st.floats(1e-100, 1e100))
def test_predictive_depends_on_ratios_only(s, sharing, scale):
    left = normalise(predictive_shares(s, 0, sharing * (1 + s.max())), 0)
    right = normalise(predictive_shares(s * scale, 0, sharing * (1 + s.max()) * scale), 0)
    np.testing.assert_allclose(left, right, atol=1e-9)


def test_predictive_formula():
    rng = np.random.default_rng(0)
    rows = [make_rows(rng, n, 3, None) for n in (12, 9, 7)]
    moments = [Moments.from_rows(U, y) for U, y in rows]
    heads = [m.head(0.5) for m in moments]
    eta = 1.5
    weights = PredictiveWeights(eta).weigh(moments=moments, heads=heads)
    U, y = rows[0]
    s = np.array([np.mean((y - U @ h) ** 2) for h in heads])
    raw = np.exp(s / eta) * np.maximum(0, s[0] + eta - s)
    np.testing.assert_allclose(weights.scores, s)
    np.testing.assert_allclose(weights.values, raw / raw.sum())
    np.testing.assert_allclose(weights.values, PredictiveWeights(eta).weigh(moments=moments, ridge=0.5).values)
    other = PredictiveWeights(eta).weigh(moments=[m.without_rows() for m in moments], heads=heads)
    np.testing.assert_allclose(weights.values, other.values, rtol=1e-9)
    last = PredictiveWeights(eta).weigh(moments=moments, heads=heads, focal=2)
    assert last.focal == 2
    assert last.values[2] >= last.values.max() - 1e-12


def test_heads_better_than_the_focal_one_follow_the_formula_too():
    shares = predictive_shares(np.array([2.0, 1.0, 3.0, 4.0]), 0, 2.0)
    np.testing.assert_allclose(shares, [1.0, 1.5 * np.exp(-0.5), 0.5 * np.exp(0.5), 0.0], rtol=1e-14)
    assert predictive_shares(np.array([2.0, 2.0, 1.0, 3.0]), 0, 0.0).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_predictive_scores_are_means_over_rows_and_outputs():
    rng = np.random.default_rng(1)
    rows = [make_rows(rng, n, 3, 2) for n in (12, 9, 7)]
    moments = [Moments.from_rows(U, Y) for U, Y in rows]
    weights = PredictiveWeights(1.5).weigh(moments=moments, ridge=0.5)
    U, Y = rows[0]
    s = np.array([np.mean((Y - U @ m.head(0.5)) ** 2) for m in moments])
    raw = np.exp(s / 1.5) * np.maximum(0, s[0] + 1.5 - s)
    np.testing.assert_allclose(weights.scores, s)
    np.testing.assert_allclose(weights.values, raw / raw.sum())


def clouds(seed=0, sizes=(15, 25, 20), shifts=(0.0, 0.5, 3.0)):
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal((n, 2)) + shift, rng.standard_normal(n))
        for name, n, shift in zip("abcd", sizes, shifts)
    }


def test_wasserstein_formula_and_what_it_reports():
    sizes, shifts = (15, 250, 20, 9), (0.0, 0.2, 0.6, 5.0)
    data = clouds(sizes=sizes, shifts=shifts)
    domains = Domains.from_dict(data, focal="a")
    weights = WassersteinWeights(2.0, 2.5, rescale=False).weigh(domains=domains)
    stacked = {name: np.column_stack(pair) for name, pair in data.items()}
    w1 = np.array([wasserstein_distance(stacked["a"], cloud).value for cloud in stacked.values()])
    raw = np.exp(-2.0 * (w1 + np.array(sizes) ** (-1 / 3))) * (w1 <= 2.5)
    np.testing.assert_allclose(weights.values, raw / raw.sum(), rtol=1e-12)
    np.testing.assert_allclose(weights.scores, w1, rtol=1e-12)
    np.testing.assert_array_equal(weights.counts, sizes)
    assert weights.dimension == 3
    assert np.all(weights.values[:3] > 0.02)
    assert weights.values[3] == 0
    assert weights.admitted.tolist() == [True, True, True, False]
    assert weights.distances[0] == TransportDistance(0.0, 0.0, 0.0, "exact", certified=True, rows=(15, 15))
    assert weights.diameter == Diameter(1.0, exact=True)
    assert weights.as_dict().keys() == {"a", "b", "c", "d"}
    assert all(d.certified for d in weights.distances)
    floor = weights.sampling_floor.value
    assert floor > 0
    assert weights.above_floor.tolist() == [False, w1[1] > floor, w1[2] > floor, True]


def test_wasserstein_limits():
    domains = Domains.from_dict(clouds(sizes=(20, 20, 20)), focal="a")
    weigh = lambda *args: WassersteinWeights(*args).weigh(domains=domains).values  # noqa: E731
    np.testing.assert_allclose(weigh(5.0, 0.0), [1, 0, 0])
    np.testing.assert_allclose(weigh(1e9), [1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(weigh(0.0), np.full(3, 1 / 3))
    np.testing.assert_allclose(weigh(0.0, 0.25), [0.5, 0.5, 0.0])


def test_counts_are_those_of_the_moments_where_rows_are_a_sample():
    data = clouds()
    moments = [Moments.from_rows(np.ones((n, 1)), np.ones(n)) for n in (1500, 25, 20)]
    rule = WassersteinWeights(2.0, rescale=False)
    domains = Domains.from_dict(data, focal="a")
    sampled, plain = rule.weigh(domains=domains, moments=moments), rule.weigh(domains=domains)
    np.testing.assert_array_equal(sampled.counts, [1500, 25, 20])
    np.testing.assert_allclose(sampled.relevance - sampled.scores, np.array([1500, 25, 20]) ** (-1 / 3))
    assert sampled.values[0] > plain.values[0]


def test_a_domain_no_farther_than_the_floor_is_not_above_it():
    """Distances are counted as above the floor only where they exceed it."""
    weights = WassersteinWeights(1.0, distance=lambda A, B: 0.25).weigh(domains=Domains.from_dict(clouds(), focal="a"))
    assert weights.sampling_floor.value == weights.distances[1].value == 0.25
    assert weights.above_floor.tolist() == [False] * 3


def test_a_domain_at_the_threshold_is_admitted():
    rule = WassersteinWeights(1.0, 0.25, distance=lambda A, B: 0.25 + 1e-9 * (len(B) == 20))
    assert rule.weigh(domains=Domains.from_dict(clouds(), focal="a")).admitted.tolist() == [True, True, False]


def test_defaults():
    given_ = {"distance": "auto", "rescale": True, "on": "inputs", "seed": 0, "floor": True, "screen": False}
    assert WassersteinWeights(2.0) == WassersteinWeights(2.0, np.inf, jobs=None, **given_)
    with pytest.raises(TypeError, match="positional"):
        WassersteinWeights(2.0, 1.0, "auto")
    points = [np.arange(6.0).reshape(3, 2) + k for k in range(2)]
    weights = WassersteinWeights(2.0, jobs=1).weigh_clouds(points, counts=[1, 1])
    assert (weights.focal, weights.names, weights.counts.tolist()) == (0, ("0", "1"), [1, 1])


def test_a_large_twin_outweighs_the_focal_domain():
    """gamma -> infinity picks the smallest W1_i + n_i^(-1/(d+D)), which need not be the focal domain's."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 2)), rng.standard_normal(4)
    twin = (np.tile(X, (50, 1)), np.tile(y, 50))
    weights = WassersteinWeights(1e6).weigh(domains=Domains.from_dict({"a": (X, y), "b": twin}, focal="a"))
    assert weights.values[1] == pytest.approx(1.0)
    assert weights.values[0] > 0


@pytest.mark.parametrize("scale", [1e-120, 1e-6, 1.0, 1e6, 1e120])
def test_rescaling_makes_settings_unit_free(scale):
    data = clouds()
    rule = WassersteinWeights(5.0, 0.3)
    here = rule.weigh(domains=Domains.from_dict(data, focal="a"))
    there = rule.weigh(domains=Domains.from_dict({k: (X * scale, y * scale) for k, (X, y) in data.items()}, focal="a"))
    np.testing.assert_allclose(here.values, there.values, rtol=1e-7)


def test_screening_changes_no_weight():
    domains = Domains.from_dict(clouds(shifts=(0.0, 0.5, 9.0)), focal="a")
    full, quick = (WassersteinWeights(5.0, 0.4, screen=s).weigh(domains=domains) for s in (False, True))
    np.testing.assert_array_equal(full.values, quick.values)
    assert quick.distances[2].method == "screened"
    assert quick.distances[2].lower <= full.distances[2].value
    assert quick.distances[1] == full.distances[1]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.2, 0.35, 1.0, float("inf")])
def test_screening_changes_no_weight_at_any_threshold(threshold):
    rng = np.random.default_rng(0)
    points = [rng.standard_normal((210, 5)) * scale + shift for shift in (0.0, 0.4, 1.5) for scale in (1.0, 2.0)]
    full, quick = (WassersteinWeights(5.0, threshold, screen=s, jobs=2).weigh_clouds(points) for s in (False, True))
    np.testing.assert_array_equal(full.values, quick.values)
    np.testing.assert_array_equal(full.admitted, quick.admitted)
    assert all(d.method == "screened" or d == known for d, known in zip(quick.distances, full.distances))
    assert quick.distances[0].value == 0


def test_permuting_the_sources_changes_nothing_else():
    data = clouds()
    turned = dict(reversed(data.items()))
    rule = WassersteinWeights(5.0, 0.5)
    here, there = (rule.weigh(domains=Domains.from_dict(d, focal="a")).as_dict() for d in (data, turned))
    for name in data:
        assert here[name] == pytest.approx(there[name], rel=1e-9)


def test_on_features():
    domains = Domains.from_dict(clouds(), focal="a")
    phi = RandomFeatures(n_inputs=2, width=8, seed=0)
    rule = WassersteinWeights(5.0, 0.5, on="features")
    direct = WassersteinWeights(5.0, 0.5).weigh(domains=domains.map(phi))
    np.testing.assert_allclose(rule.weigh(domains=domains, feature_map=phi).values, direct.values)
    np.testing.assert_allclose(
        rule.weigh(domains=domains, feature_map=Identity(2)).values,
        WassersteinWeights(5.0, 0.5).weigh(domains=domains).values,
    )
    with pytest.raises(ParameterError, match="feature_map"):
        rule.weigh(domains=domains)


@pytest.mark.parametrize("distance", ["exact", "sliced", "bracket"])
def test_distance_by_name(distance):
    weights = WassersteinWeights(1.0, distance=distance).weigh(domains=Domains.from_dict(clouds(), focal="b"))
    assert weights.distances[0].method == distance
    assert on_simplex(weights.values, 1)


def test_distance_by_function():
    mean_gap = lambda A, B: float(np.linalg.norm(A.mean(axis=0) - B.mean(axis=0)))  # noqa: E731
    weights = WassersteinWeights(1.0, distance=mean_gap).weigh(domains=Domains.from_dict(clouds(), focal="a"))
    assert weights.distances[1].method == "given"
    assert not weights.distances[1].certified
    assert (weights.distances[1].lower, weights.distances[1].upper) == (0.0, np.inf)
    with pytest.raises(ParameterError, match="distance function"):
        WassersteinWeights(1.0, distance=lambda A, B: float("nan")).weigh(
            domains=Domains.from_dict(clouds(), focal="a")
        )


def test_a_focal_domain_of_one_row_has_no_floor():
    data = clouds()
    data["a"] = (data["a"][0][:1], data["a"][1][:1])
    weights = WassersteinWeights(1.0).weigh(domains=Domains.from_dict(data, focal="a"))
    assert weights.sampling_floor is None
    assert weights.above_floor.tolist() == [False, True, True]
    data["a"] = (clouds()["a"][0][:2], clouds()["a"][1][:2])
    domains = Domains.from_dict(data, focal="a")
    assert WassersteinWeights(1.0).weigh(domains=domains).sampling_floor.rows == (1, 1)
    assert WassersteinWeights(1.0, floor=False).weigh(domains=domains).sampling_floor is None


def test_identical_points_everywhere():
    same = (np.ones((4, 2)), np.ones(4))
    weights = WassersteinWeights(3.0, 0.1).weigh(domains=Domains.from_dict({"a": same, "b": same}, focal="a"))
    np.testing.assert_allclose(weights.values, [0.5, 0.5])


def test_equal_and_given():
    moments = [Moments.from_rows(np.ones((3, 2)), np.ones(3))] * 4
    np.testing.assert_allclose(EqualWeights().weigh(moments=moments), np.full(4, 0.25))
    given_ = GivenWeights([0.1, 0.2, 0.3, 0.4]).weigh(moments=moments)
    np.testing.assert_allclose(given_.values, [0.1, 0.2, 0.3, 0.4])
    with pytest.raises(ParameterError, match="sum to 1"):
        GivenWeights([0.1, 0.2, 0.3, 0.5]).weigh(moments=moments)


def test_heads_that_are_not_numbers_are_refused_and_wild_ones_cut_off():
    moments = [Moments.from_rows(np.ones((3, 1)), np.full(3, level)) for level in (1.0, 2.0)]
    with pytest.raises(DataError, match=r"heads\[0\] holds NaN"):
        PredictiveWeights(1.0).weigh(moments=moments, heads=[[np.nan], [1.0]])
    wild = PredictiveWeights(1.0).weigh(moments=moments, heads=[[1.0], [1e200]])
    np.testing.assert_allclose(wild.values, [1.0, 0.0])
    with pytest.raises(DataError, match="from_rows"):
        PredictiveWeights(1.0).weigh(moments=[1, 2], ridge=1.0)
    with pytest.raises(ParameterError, match="focal must be"):
        EqualWeights().weigh(moments=moments, focal=1.5)


def test_clouds_given_directly_are_checked():
    points = [np.random.default_rng(k).standard_normal((6, 2)).tolist() for k in range(3)]
    rule = WassersteinWeights(1.0)
    assert on_simplex(rule.weigh_clouds(points).values, 0)
    for wrong in ({"focal": 3}, {"focal": -1}, {"counts": [1, 2]}, {"counts": [0, 1, 2]}, {"names": ("a",)}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            rule.weigh_clouds(points, **wrong)


def test_weights_print_on_one_line():
    weights = WassersteinWeights(1.0).weigh(domains=Domains.from_dict(clouds(), focal="a"))
    assert repr(weights).startswith("TransportWeights(wasserstein; ")
    assert len(repr(weights)) < 100
    moments = [Moments.from_rows(np.ones((3, 2)), np.ones(3))] * 6
    given_ = GivenWeights([0.05, 0.1, 0.15, 0.2, 0.225, 0.275]).weigh(moments=moments)
    assert repr(given_) == "DomainWeights(given; 5: 0.275, 4: 0.225, 3: 0.2, 2: 0.15, 1: 0.1, ...)"
    five = GivenWeights([0.2] * 5).weigh(moments=moments[:5])
    assert repr(five) == "DomainWeights(given; 0: 0.2, 1: 0.2, 2: 0.2, 3: 0.2, 4: 0.2)"
    with pytest.raises(ValueError, match="read-only"):
        weights.values[0] = 1.0


def test_what_is_missing_is_named():
    moments = [Moments.from_rows(np.ones((3, 2)), np.ones(3))] * 2
    domains = Domains.from_dict(clouds(), focal="a")
    with pytest.raises(ParameterError, match="needs heads \\(or ridge"):
        PredictiveWeights(1.0).weigh(moments=moments)
    with pytest.raises(ParameterError, match="needs moments; pass"):
        PredictiveWeights(1.0).weigh(domains=domains, ridge=1.0)
    with pytest.raises(ParameterError, match="needs domains; pass"):
        WassersteinWeights(1.0).weigh(moments=moments)
    with pytest.raises(ParameterError, match="same number"):
        EqualWeights().weigh(moments=moments, domains=domains)
    with pytest.raises(ParameterError, match="same number"):
        EqualWeights().weigh()
    with pytest.raises(ParameterError, match="no domain 'z'"):
        EqualWeights().weigh(domains=domains, focal="z")
    with pytest.raises(ParameterError, match="focal must be"):
        EqualWeights().weigh(moments=moments, focal=2)
    assert EqualWeights().weigh(domains=domains, focal="c").focal == 2
    assert EqualWeights().weigh(domains=Domains.from_dict(clouds(), focal="b")).focal == 1
    assert [EqualWeights().weigh(moments=moments, focal=k).focal for k in (None, 0, np.int64(1))] == [0, 0, 1]
    for wrong in (True, -1, 0.0):
        with pytest.raises(ParameterError, match="focal must be a domain's name or an index from 0 to 1"):
            EqualWeights().weigh(moments=moments, focal=wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PredictiveWeights(-1.0),
        lambda: PredictiveWeights(float("nan")),
        lambda: WassersteinWeights(-1.0),
        lambda: WassersteinWeights(float("inf")),
        lambda: WassersteinWeights(1.0, -0.1),
        lambda: WassersteinWeights(1.0, float("nan")),
        lambda: WassersteinWeights(1.0, seed=-1),
        lambda: WassersteinWeights(1.0, jobs=0),
        lambda: WassersteinWeights(1.0, on="pictures"),
        lambda: WassersteinWeights(1.0, distance="taxi"),
    ],
)
def test_refused_settings(make):
    with pytest.raises(ParameterError):
        make()


def test_t_gain_is_the_mean_relevance_less_that_of_the_focal_domain():
    """Written out: what the sources add to the bound, which is negative where they improve it."""
    domains = Domains.from_dict(clouds(sizes=(5, 400, 20)), focal="a")
    weights = WassersteinWeights(3.0, 2.0).weigh(domains=domains)
    mean = sum(value * relevance for value, relevance in zip(weights.values, weights.relevance))
    assert weights.t_gain == pytest.approx(mean - weights.relevance[0], rel=1e-12)
    alone = WassersteinWeights(3.0, 0.0).weigh(domains=domains)
    assert alone.t_gain == pytest.approx(0.0, abs=1e-15)


def test_weights_as_a_frame_have_scores_where_the_rule_compared_something():
    pytest.importorskip("pandas")
    domains = Domains.from_dict(clouds(), focal="a")
    weights = WassersteinWeights(1.0).weigh(domains=domains)
    frame = weights.to_frame()
    assert frame.columns.tolist() == ["domain", "weight", "score"]
    assert frame["domain"].tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(frame["weight"], weights.values)
    np.testing.assert_array_equal(frame["score"], weights.scores)
    assert EqualWeights().weigh(domains=domains).to_frame().columns.tolist() == ["domain", "weight"]


def test_a_threshold_with_a_width_is_continuous():
    """A domain that moves past the threshold loses its weight bit by bit, and all of it beyond."""
    x = np.linspace(0, 1, 20)[:, None]

    def weight(shift, width):
        rule = WassersteinWeights(1.0, 0.5, threshold_width=width, rescale=False, floor=False)
        return rule.weigh_clouds([x, x + shift]).values[1]

    assert weight(0.5 + 1e-9, 0.0) == 0 < 0.3 < weight(0.5 - 1e-9, 0.0)  # all at once
    assert weight(0.5, 0.2) == weight(0.6, 0.2) == 0
    assert weight(0.3, 0.2) == pytest.approx(weight(0.3, 0.0))
    path = np.array([weight(shift, 0.2) for shift in np.linspace(0.25, 0.55, 301)])
    assert np.all(np.diff(path) <= 0)
    assert np.max(np.abs(np.diff(path))) < 0.01
    raw = np.exp(-0.4) * (3 * 0.5**2 - 2 * 0.5**3)  # in the middle of the band
    assert weight(0.4, 0.2) == pytest.approx(raw / (1 + raw))


def test_weights_with_a_width_minimise_their_own_bound():
    """Theorem 1 with the law that the smooth threshold leaves: the weights still have the least objective."""
    from mixtune.regret import generalisation_bound, kl_term

    x = np.linspace(0, 1, 20)[:, None]
    rule = WassersteinWeights(3.0, 0.5, threshold_width=0.4, rescale=False, floor=False)
    weights = rule.weigh_clouds([x, x + 0.3, x + 0.05, x + 2])
    assert weights.prior.sum() == pytest.approx(1)
    assert weights.prior[3] == 0
    assert 0 < weights.prior[1] < weights.prior[0]

    def objective(values):
        changed = replace(weights, values=values)
        return generalisation_bound(changed, delta=0.1, loss_lipschitz=1.0, model_lipschitz=1.0).objective

    least = objective(weights.values)
    rng = np.random.default_rng(0)
    for mixed in rng.dirichlet(np.ones(3), 50):
        assert objective(0.9 * weights.values + 0.1 * np.append(mixed, 0)) > least
    assert np.isinf(kl_term(replace(weights, values=np.array([0.5, 0.0, 0.0, 0.5]))))
