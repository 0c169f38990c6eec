"""A model for every domain: against the fit with that domain focal, and what users may pass."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixtune import MultiDomainRegressor, RandomFeatures, RegretOptimalRegressorCV, StreamedSources, load
from mixtune.errors import DataError, ParameterError

CUTS = KFold(2, shuffle=True, random_state=0)


def draw(domains=8, rows=14, columns=3, seed=0, noise=0.5):
    """Slopes that differ a little between domains, and levels that differ more."""
    rng = np.random.default_rng(seed)
    common = np.linspace(1.0, 2.0, columns)
    X, y, names = [], [], []
    for k in range(domains):
        part = rng.standard_normal((rows + k % 4, columns))
        target = part @ (common + 0.3 * rng.standard_normal(columns)) + rng.standard_normal()
        X.append(part)
        y.append(target + noise * rng.standard_normal(len(part)))
        names += [f"d{k:02d}"] * len(part)
    return np.concatenate(X), np.concatenate(y), np.array(names)


@pytest.fixture(scope="module")
def data():
    return draw()


@pytest.fixture(scope="module")
def linear(data):
    X, y, names = data
    return MultiDomainRegressor(feature_map=None).fit(X, y, domain=names)


def test_each_domain_is_as_with_that_domain_focal(data, linear):
    X, y, names = data
    for place in (0, 5):
        own = names == linear.domains_[place]
        sources = {name: (X[names == name], y[names == name]) for name in linear.domains_ if name != names[own][0]}
        alone = RegretOptimalRegressorCV(feature_map=None).fit(X[own], y[own], sources=sources)
        apart = alone.predict(X[own]) - linear.predict(X[own], domain=names[own])
        assert np.sqrt(np.mean(apart**2)) < 0.15 * np.sqrt(alone.loo_error_)


def test_better_than_rows_alone_and_pooled_rows():
    X, y, names = draw(seed=1)
    truth = draw(seed=1, noise=0.0)[1]
    model = MultiDomainRegressor(feature_map=None).fit(X, y, domain=names)
    error = np.mean((model.predict(X, domain=names) - truth) ** 2)
    own = np.einsum("ij,ij->i", X, model.own_coef_[np.searchsorted(model.domains_, names)])
    own += model.own_intercept_[np.searchsorted(model.domains_, names)]
    assert error < 0.95 * np.mean((own - truth) ** 2)
    assert error < 0.5 * np.mean((model.predict(X, domain=["new"] * len(X)) - truth) ** 2)


def test_weights_are_shares(linear):
    model = linear
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0)
    assert np.all(model.weights_ >= 0)
    assert np.all(np.diagonal(model.weights_) > 0)


def test_order_of_rows_and_domains_does_not_matter(linear, data):
    X, y, names = data
    np.testing.assert_array_equal(linear.coef_, MultiDomainRegressor(None).fit(X, y, domain=names).coef_)
    keep = names < "d05"
    X, y, names = X[keep], y[keep], names[keep]
    order = np.random.default_rng(5).permutation(len(y))
    one = MultiDomainRegressor().fit(X, y, domain=names)
    other = MultiDomainRegressor().fit(X[order], y[order], domain=names[order])
    np.testing.assert_allclose(one.predict(X, domain=names), other.predict(X, domain=names), rtol=1e-6, atol=1e-6)


def test_names_sort_differently_and_nothing_changes(data, linear):
    X, y, names = data
    renamed = np.array([str(100 - int(name[1:])) for name in names])
    other = MultiDomainRegressor(feature_map=None).fit(X, y, domain=renamed)
    apart = other.predict(X, domain=renamed) - linear.predict(X, domain=names)
    np.testing.assert_allclose(apart, 0.0, atol=1e-7)


def test_labels_as_a_column(data, linear):
    X, y, names = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(site=names)
    model = MultiDomainRegressor(feature_map=None, domain="site").fit(frame, y)
    np.testing.assert_allclose(model.predict(frame), linear.predict(X, domain=names))
    np.testing.assert_allclose(model.predict(pa.Table.from_pandas(frame)), linear.predict(X, domain=names))
    numbers = np.column_stack([[int(name[1:]) for name in names], X])
    placed = MultiDomainRegressor(feature_map=None, domain=0).fit(numbers, y)
    assert placed.domains_[:2] == ("0", "1")
    np.testing.assert_allclose(placed.predict(numbers), linear.predict(X, domain=names), atol=1e-7)
    with pytest.raises(DataError, match="no column 'place' of domain labels"):
        MultiDomainRegressor(domain="place").fit(frame, y)
    with pytest.raises(DataError, match="pass a data frame"):
        MultiDomainRegressor(domain="place").fit(X, y)
    with pytest.raises(ParameterError, match="leave domain out"):
        MultiDomainRegressor(domain="site").fit(frame, y, domain=names)


def test_in_scikit_learn():
    X, y, names = draw(domains=4)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(site=names)
    search = GridSearchCV(MultiDomainRegressor(domain="site"), {"feature_map": [None]}, cv=CUTS).fit(frame, y)
    assert search.best_score_ > 0.7
    scores = cross_val_score(make_pipeline(MultiDomainRegressor(None, domain="site")), frame, y, cv=CUTS)
    assert scores.min() > 0.7
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(MultiDomainRegressor(None), X, y, params={"domain": names}, cv=CUTS)
        steps = make_pipeline(StandardScaler(), MultiDomainRegressor(None))
        scaled = cross_val_score(steps, X, y, params={"domain": names}, cv=CUTS)
        search = GridSearchCV(MultiDomainRegressor(None), {"standardise": [True]}, cv=CUTS).fit(X, y, domain=names)
    np.testing.assert_allclose(routed, scores)
    np.testing.assert_allclose(scaled, scores)
    assert search.best_score_ == pytest.approx(scores.mean())


def test_one_onnx_model_with_the_domain_as_an_input(data, linear, tmp_path):
    reference = pytest.importorskip("onnx.reference")
    X, y, names = data
    path = tmp_path / "models.onnx"
    content = linear.to_onnx(path)
    assert path.read_bytes() == content
    labels = np.where(np.arange(len(X)) % 7 == 0, "new", names)
    rows = np.concatenate([X, 100 * X])  # beyond the range of the training rows features are clipped
    given = {"features": rows, "domain": np.tile(labels, 2).astype(object)}
    (found,) = reference.ReferenceEvaluator(content).run(None, given)
    np.testing.assert_allclose(found, linear.predict(rows, domain=np.tile(labels, 2)), rtol=1e-12)
    single = (
        MultiDomainRegressor(None, clamp=False).fit(X, y, domain=names).to_onnx(dtype="float32", domain_name="site")
    )
    (small,) = reference.ReferenceEvaluator(single).run(
        None, {"features": X.astype(np.float32), "site": names.astype(object)}
    )
    np.testing.assert_allclose(small, linear.predict(X, domain=names), atol=1e-4)
    with pytest.raises(ParameterError, match="must differ"):
        linear.to_onnx(domain_name="features")


def test_streams_and_dask_collections(data, linear):
    dask, distributed = (pytest.importorskip(name) for name in ("dask.dataframe", "distributed"))
    X, y, names = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, site=names)
    arrays = MultiDomainRegressor(None).fit(StreamedSources((X, y), domain=names, progress=False))
    np.testing.assert_allclose(arrays.predict(X, domain=names), linear.predict(X, domain=names), atol=1e-8)
    assert "models were validated on at most 2,000 rows of each domain, drawn at random" in arrays.notes_
    parts = dask.from_pandas(frame, npartitions=3)
    options = {"target": "y", "domain": "site", "columns": ["a", "b", "c"], "progress": False}
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        streamed = MultiDomainRegressor(None).fit(StreamedSources(parts, sample_rows=10, scheduler=client, **options))
    assert streamed.n_rows_.tolist() == linear.n_rows_.tolist()
    np.testing.assert_allclose(streamed.own_coef_, linear.own_coef_, atol=1e-10)
    assert list(streamed.feature_names_in_) == ["a", "b", "c"]
    whole = MultiDomainRegressor(None, domain="site").fit(parts.drop(columns="y"), parts["y"])
    np.testing.assert_allclose(whole.predict(frame.drop(columns="y")), linear.predict(X, domain=names), atol=1e-7)
    with pytest.raises(ParameterError, match="pass nothing beside them"):
        MultiDomainRegressor(None).fit(StreamedSources((X, y), domain=names), y)


@pytest.mark.parametrize("settings", [{"feature_map": None}, {"fit_intercept": False}], ids=str)
def test_streams_that_samples_hold_whole_give_the_fit_in_memory(settings):
    X, y, names = draw(domains=6, rows=25)
    expected = MultiDomainRegressor(**settings).fit(X, y, domain=names)
    told = []
    stream = StreamedSources((X, y), domain=names, progress=lambda done, total: told.append(done))
    ours = MultiDomainRegressor(**settings).fit(stream)
    for method in ("predict", "predict_interval"):
        found, known = (getattr(model, method)(X, domain=names) for model in (ours, expected))
        np.testing.assert_allclose(found, known, atol=1e-8)
    np.testing.assert_allclose(ours.weights_, expected.weights_, atol=1e-8)
    assert told.count(0) == 2


def test_models_of_streams_come_from_all_rows():
    X, y, names = draw(domains=5, rows=300, columns=2)
    drawn = StreamedSources((X, y), domain=names, sample_rows=60, progress=False)
    part = MultiDomainRegressor(None).fit(drawn)
    whole = MultiDomainRegressor(None).fit(X, y, domain=names)
    assert part.n_rows_.tolist() == whole.n_rows_.tolist()
    np.testing.assert_allclose(part.own_coef_, whole.own_coef_, atol=1e-10)
    # Samples alone know the coefficients less well; with all rows, only the shares of the candidates differ.
    sampled = drawn.samples()
    few = MultiDomainRegressor(None).fit(
        *map(np.concatenate, zip(*sampled.values())), domain=np.repeat(list(sampled), 60)
    )
    apart = [np.abs(model.coef_ - whole.coef_).max() for model in (part, few)]
    assert apart[0] < 0.5 * apart[1]
    assert np.all(np.diagonal(part.weights_) > 0.5 * np.diagonal(whole.weights_))
    # Rows, domains and streams come and go by their sums.
    more, first = (draw(domains=1, rows=300, columns=2, seed=seed)[:2] for seed in (1, 2))
    part.partial_fit(more[0], more[1], domain=["new"] * 300)
    part.partial_fit(StreamedSources(first, domain=["d00"] * 300, sample_rows=60, progress=False))
    part.forget("d03")
    kept = names != "d03"
    inputs, targets = (np.concatenate([a[kept], b, c]) for a, b, c in zip((X, y), first, more))
    labels = np.concatenate([names[kept], ["d00"] * 300, ["new"] * 300])
    whole = MultiDomainRegressor(None).fit(inputs, targets, domain=labels)
    assert part.n_rows_.tolist() == whole.n_rows_.tolist()
    np.testing.assert_allclose(part.own_coef_, whole.own_coef_, atol=1e-9)


def test_sums_beyond_the_memory_limit_leave_the_samples():
    X, y, names = draw(domains=5, rows=90)
    wide = RandomFeatures(n_inputs=3, width=300, seed=0)
    stream = StreamedSources((X, y), domain=names, sample_rows=20, memory_limit=2_200_000, progress=False)
    model = MultiDomainRegressor(wide).fit(stream)
    assert "models were learned on at most 20 rows of each domain, drawn at random" in model.notes_
    assert model.n_rows_.tolist() == [20] * 5
    model.partial_fit(X[:5], y[:5], domain=names[:5])
    assert model.n_rows_.tolist() == [25, 20, 20, 20, 20]


def test_unseen_domains(data, linear):
    X, y, names = data
    low, high = linear.predict_interval(X[:5], domain=["new"] * 5)
    known_low, known_high = linear.predict_interval(X[:5], domain=names[:5])
    assert np.all(high - low > 1.5 * (known_high - known_low))
    middle = linear.predict(X[:5], domain=["new"] * 5)
    np.testing.assert_allclose(middle, X[:5] @ linear.population_coef_ + linear.population_intercept_)
    with pytest.raises(DataError, match="domains that were not seen in fit: new; add"):
        MultiDomainRegressor(None, unseen="error").fit(X, y, domain=names).predict(X[:2], domain=["new", "d01"])
    with pytest.raises(ParameterError, match="unseen='no' is unknown"):
        MultiDomainRegressor(unseen="no").fit(X, y, domain=names)


def test_intervals_cover():
    X, y, names = draw(domains=8, rows=40, seed=3)
    half = np.random.default_rng(0).permutation(len(y))
    train, test = half[: len(y) // 2], half[len(y) // 2 :]
    model = MultiDomainRegressor(feature_map=None).fit(X[train], y[train], domain=names[train])
    low, high = model.predict_interval(X[test], domain=names[test])
    assert 0.85 < np.mean((low <= y[test]) & (y[test] <= high)) < 0.95
    with pytest.raises(ParameterError, match="between 0 and 1"):
        model.predict_interval(X, domain=names, coverage=1.0)


def test_intervals_of_coefficients_cover():
    rng = np.random.default_rng(0)
    X, names = rng.standard_normal((400, 3)), np.repeat([f"d{k:02d}" for k in range(20)], 20)
    slopes, levels = [1.0, 1.5, 2.0] + 0.3 * rng.standard_normal((20, 3)), rng.standard_normal(20)
    y = np.sum(X * np.repeat(slopes, 20, axis=0), axis=1) + np.repeat(levels, 20) + 0.7 * rng.standard_normal(400)
    model = MultiDomainRegressor(feature_map=None).fit(X, y, domain=names)
    found, truth = model.coefficient_columns(), slopes.ravel()
    assert np.mean((found["low"] <= truth) & (truth <= found["high"])) > 0.85
    own = np.abs(found["own"] - truth)
    assert np.mean(np.abs(found["estimate"] - truth)) < own.mean()
    assert np.mean(found["high"] - found["low"]) < 8 * own.mean()
    at = model.level_columns()
    middle = levels + slopes @ X.mean(axis=0)
    assert np.mean((at["low"] <= middle) & (middle <= at["high"])) > 0.85
    assert model.predict(X.mean(axis=0)[None], domain=["d03"]) == pytest.approx(at["estimate"][3])


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows_and_constant_targets(data, rows):
    X, y, names = data
    keep = (names != "d03") | (np.cumsum(names == "d03") <= rows)
    y = np.where(names == "d05", 1.0, y)
    model = MultiDomainRegressor(feature_map=None).fit(X[keep], y[keep], domain=names[keep])
    assert any("every target is the same" in note for note in model.notes_)
    assert (rows > 1) or any("one row only: d03" in note for note in model.notes_)
    assert np.all(np.isfinite(model.predict(X, domain=names)))
    low, high = model.predict_interval(X, domain=names)
    assert np.all(np.isfinite(high - low))
    assert np.all(high > low)


def test_bad_labels(data):
    X, y, names = data
    model = MultiDomainRegressor(None)
    missing = names.astype(object)
    missing[7] = None
    with pytest.raises(DataError, match="1 of 124 rows have no domain label, the first is row 7"):
        model.fit(X, y, domain=missing)
    with pytest.raises(DataError, match="1 of 124 rows have no domain label"):
        model.fit(X, y, domain=np.where(np.arange(len(y)) == 7, np.nan, 1.0))
    with pytest.raises(DataError, match="3 domain labels for 124 rows"):
        model.fit(X, y, domain=["a", "b", "c"])
    with pytest.raises(DataError, match="one label per row"):
        model.fit(X, y, domain=np.column_stack([names, names]))
    many = np.zeros((100_000, 1))
    with pytest.raises(DataError, match="100000 domains, more than 20000; is the label an identifier"):
        model.fit(many, many[:, 0], domain=np.arange(100_000))
    with pytest.raises(ParameterError, match="predict needs the domain of each row"):
        model.fit(X, y, domain=names).predict(X)


def test_numbers_and_texts_name_the_same_domains():
    X, y, names = draw(domains=3)
    numbers = np.array([int(name[1:]) for name in names])
    model = MultiDomainRegressor(None).fit(X, y, domain=numbers)
    np.testing.assert_array_equal(
        model.predict(X, domain=numbers), model.predict(X, domain=pd.Series(numbers.astype(float)))
    )
    np.testing.assert_array_equal(model.predict(X, domain=numbers), model.predict(X, domain=numbers.astype(str)))


def test_one_domain_and_no_labels(data):
    X, y, _ = data
    model = MultiDomainRegressor(None).fit(X, y)
    alone = RegretOptimalRegressorCV(None).fit(X, y)
    np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-9)


def test_sample_weight_zero_is_absent():
    X, y, names = draw(domains=4)
    keep = names != "d02"
    weighted = MultiDomainRegressor(None).fit(X, y, keep.astype(float), domain=names)
    without = MultiDomainRegressor(None).fit(X[keep], y[keep], domain=names[keep])
    assert weighted.domains_ == without.domains_
    np.testing.assert_allclose(weighted.coef_, without.coef_, rtol=1e-7)


def test_rows_and_domains_come_and_go():
    X, y, names = draw(domains=4, rows=8)
    first = names < "d02"
    model = MultiDomainRegressor(None).partial_fit(X[first], y[first], domain=names[first])
    model.partial_fit(X[~first], y[~first], domain=names[~first])
    np.testing.assert_allclose(model.coef_, MultiDomainRegressor(None).fit(X, y, domain=names).coef_)
    keep = names != "d03"
    gone = model.forget("d03")
    np.testing.assert_allclose(gone.coef_, MultiDomainRegressor(None).fit(X[keep], y[keep], domain=names[keep]).coef_)
    with pytest.raises(ParameterError, match='no domain "d7"'):
        model.forget("d7")


def test_tables(linear):
    found = linear.summary()
    assert list(found["domain"]) == list(linear.domains_)
    assert len(found.columns) == 17
    for name, place in (("own_rows", 0), ("pooled", 1)):
        ratio = found[f"ratio_{name}"]
        np.testing.assert_allclose(ratio, found["error"] / found[f"error_{name}"])
        assert np.all((found[f"ratio_{name}_low"] < ratio) & (ratio < found[f"ratio_{name}_high"]))
        assert ratio[0] == linear.compared_[0][place].ratio
    assert np.all(found["gain_low"] <= found["gain"])
    assert np.all(found["gain"] <= found["gain_high"])
    assert found["error"].mean() < found["error_own_rows"].mean() < found["error_pooled"].mean()
    borrows = linear.borrows()
    np.testing.assert_array_equal(borrows.to_numpy(), linear.weights_)
    assert list(borrows.index) == list(borrows.columns) == list(linear.domains_)
    table = linear.coefficients()
    assert len(table) == 24
    assert np.all(table["low"] < table["estimate"])
    np.testing.assert_array_equal(table["estimate"], linear.coef_.ravel())


@pytest.mark.parametrize("feature_map", [None, "auto"])
def test_saved_and_loaded(tmp_path, feature_map):
    X, y, names = draw(domains=5, rows=10)
    model = MultiDomainRegressor(feature_map).fit(X, y, domain=names)
    back = load(model.save(tmp_path / "models.mixtune"))
    labels = [*names[:-1], "new"]
    np.testing.assert_array_equal(back.predict(X, domain=labels), model.predict(X, domain=labels))
    for one, other in zip(back.predict_interval(X, domain=labels), model.predict_interval(X, domain=labels)):
        np.testing.assert_array_equal(one, other)
    pd.testing.assert_frame_equal(back.summary(), model.summary())
    if feature_map == "auto":
        with pytest.raises(ParameterError, match="cannot write the kernels, splines, Fourier features and trees"):
            back.to_onnx()
    with pytest.raises(ParameterError, match="holds no rows"):
        back.forget("d01")


@pytest.mark.parametrize("apart", [0.1, 0.5])
def test_intervals_of_coefficients_cover_them(apart):
    """Also where domains are more alike than their few rows can tell, and the estimate of their scatter is zero."""
    covered = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        domain = np.repeat(np.arange(20), 25)
        slopes = np.array([1.0, 2.0]) + apart * rng.standard_normal((20, 2))
        X = rng.standard_normal((len(domain), 2))
        y = np.sum(X * slopes[domain], axis=1) + rng.standard_normal(len(domain))
        found = MultiDomainRegressor(None).fit(X, y, domain=[f"d{k:02d}" for k in domain]).coefficient_columns()
        covered.append((found["low"] <= slopes.ravel()) & (slopes.ravel() <= found["high"]))
    assert 0.9 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize("constant", [False, True])
def test_coefficients_that_no_domain_determines_have_no_intervals(constant, tmp_path):
    """Domains of fewer rows than columns, and targets that do not vary: nothing tells how far domains scatter."""
    rng = np.random.default_rng(0)
    X, domain = rng.standard_normal((36, 8)), np.repeat(list("abcdef"), 6)
    y = np.zeros(36) if constant else X[:, 0] + rng.standard_normal(36)
    model = MultiDomainRegressor(None).fit(X, y, domain=domain)
    table = model.coefficients()
    assert "low" not in table.columns
    assert np.isfinite(table.select_dtypes("number")).all(axis=None)
    assert load(model.save(tmp_path / "models.mixtune")).coefficients().equals(table)


def bent(domains=8, rows=24, seed=0):
    """Curves that differ in level, the last one reversed."""
    rng = np.random.default_rng(seed)
    X, names = rng.standard_normal((domains * rows, 2)), np.repeat([f"d{k:02d}" for k in range(domains)], rows)
    sign = np.where(names == names[-1], -1.0, 1.0)
    levels = np.repeat(rng.standard_normal(domains), rows)
    truth = sign * (np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2) + levels
    return X, truth + 0.1 * rng.standard_normal(len(truth)), names, truth


@pytest.fixture(scope="module")
def curved():
    X, y, names, _ = bent()
    return MultiDomainRegressor().fit(X, y, domain=names)


def mean_error(predicted, truth):
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


def test_curves_of_every_domain_are_as_with_that_domain_focal(curved):
    X, y, names, truth = bent()
    for name in ("d00", "d07"):
        own = names == name
        sources = {other: (X[names == other], y[names == other]) for other in curved.domains_ if other != name}
        alone = RegretOptimalRegressorCV().fit(X[own], y[own], sources=sources)
        ours = curved.predict(X[own], domain=names[own])
        assert mean_error(ours, truth[own]) < 1.3 * mean_error(alone.predict(X[own]), truth[own])
        assert mean_error(ours, truth[own]) < 0.15


def test_curves_are_learned_from_other_domains():
    X, y, names, truth = bent(rows=30)
    few = np.concatenate([np.flatnonzero(names == name)[: 8 if name == "d02" else 30] for name in np.unique(names)])
    model = MultiDomainRegressor().fit(X[few], y[few], domain=names[few])
    rest = np.setdiff1d(np.flatnonzero(names == "d02"), few)
    assert mean_error(model.predict(X[rest], domain=names[rest]), truth[rest]) < 0.25
    # The domain that is reversed provides nothing.
    assert model.borrows().loc["d02", "d07"] == 0
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0)


def test_targets_of_one_domain_may_have_other_units():
    X, y, names, truth = bent()
    few = np.concatenate([np.flatnonzero(names == name)[: 8 if name == "d03" else 24] for name in np.unique(names)])
    own, rest = names[few] == "d03", np.setdiff1d(np.flatnonzero(names == "d03"), few)
    model = MultiDomainRegressor().fit(X[few], y[few], domain=names[few])
    scaled = MultiDomainRegressor().fit(X[few], np.where(own, 1e6 * y[few] - 3e6, y[few]), domain=names[few])
    ours, known = (each.predict(X[few], domain=names[few]) for each in (scaled, model))
    assert mean_error(ours[~own], known[~own]) < 0.05
    # Where the unit is known, more is.
    limit = 1.3 * mean_error(model.predict(X[rest], domain=names[rest]), truth[rest])
    assert mean_error((scaled.predict(X[rest], domain=names[rest]) + 3e6) / 1e6, truth[rest]) < limit


def test_order_of_rows_and_domains_does_not_matter_to_curves(curved):
    X, y, names, _ = bent()
    order = np.random.default_rng(3).permutation(len(y))
    again = MultiDomainRegressor().fit(X[order], y[order], domain=names[order])
    np.testing.assert_allclose(again.predict(X, domain=names), curved.predict(X, domain=names), rtol=1e-6, atol=1e-6)


def test_curves_for_unseen_domains_and_their_intervals():
    X, y, names, _ = bent(domains=20)
    seen = np.isin(names, np.unique(names)[:14])
    model = MultiDomainRegressor().fit(X[seen], y[seen], domain=names[seen])
    # The last domain is reversed; the next to last ones differ in level only.
    new = ~seen & (names != names[-1])
    low, high = model.predict_interval(X[new], domain=names[new])
    covered = np.mean((low <= y[new]) & (y[new] <= high))
    assert 0.75 < covered <= 1.0
    centred = y[new] - model.predict(X[new], domain=names[new])
    within = [centred[names[new] == name] for name in np.unique(names[new])]
    assert np.mean([np.std(part) for part in within]) < 0.3


def test_intervals_of_curves_cover():
    X, y, names, _ = bent(domains=10, rows=60, seed=4)
    covered = []
    for train, test in CUTS.split(X):
        model = MultiDomainRegressor().fit(X[train], y[train], domain=names[train])
        low, high = model.predict_interval(X[test], domain=names[test])
        covered.append((low <= y[test]) & (y[test] <= high))
    assert 0.84 < np.mean(np.concatenate(covered)) < 0.96


@pytest.mark.parametrize("rows", [1, 2])
def test_curves_of_domains_with_few_rows_or_equal_targets(rows):
    X, y, names, _ = bent()
    few = np.concatenate([np.flatnonzero(names == name)[: rows if name == "d01" else 24] for name in np.unique(names)])
    y = np.where(names == "d05", 2.0, y)
    model = MultiDomainRegressor().fit(X[few], y[few], domain=names[few])
    assert np.all(np.isfinite(model.predict(X, domain=names)))
    constant = names == "d05"
    assert mean_error(model.predict(X[constant], domain=names[constant]), 2.0) < 0.1


def test_of_two_domains_each_is_a_source_of_the_other():
    X, y, names, truth = bent(domains=3, rows=40)
    two = names != "d02"
    model = MultiDomainRegressor().fit(X[two], y[two], domain=names[two])
    assert mean_error(model.predict(X[two], domain=names[two]), truth[two]) < 0.2
