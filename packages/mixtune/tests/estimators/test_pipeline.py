"""Transformers in front of estimators with sources, and feature maps that see frames with text."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler

from estimators.transfer_data import make_transfer
from extras import extra
from mixtune import RegretOptimalClassifier, RegretOptimalRegressor, RegretOptimalRegressorCV, Sources, SourcesPipeline
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import MultiDomainRegressor
from mixtune.features import SklearnFeatures

pandas, polars = extra("pandas"), extra("polars")
X, y, SOURCES = make_transfer()


def frame(rows, seed, library):
    """Rows with a column of text, and targets that depend on it."""
    rng = np.random.default_rng(seed)
    colour, size = rng.choice(["red", "green", "blue"], rows), rng.standard_normal(rows)
    targets = size + 2.0 * (colour == "red") + 0.1 * rng.standard_normal(rows)
    return library.DataFrame({"colour": colour, "size": size}), targets


def encoder():
    return ColumnTransformer([("levels", OneHotEncoder(sparse_output=False), ["colour"])], remainder="passthrough")


@pytest.mark.parametrize("on", ["all", "focal"])
def test_steps_see_focal_rows_and_sources(on):
    model = SourcesPipeline(
        [("s", StandardScaler()), ("m", RegretOptimalRegressor(standardise=False))], fit_steps_on=on
    )
    model.fit(X, y, sources=SOURCES)
    rows = np.concatenate([X, *(U for U, _ in SOURCES.values())]) if on == "all" else X
    scaler = StandardScaler().fit(rows)
    by_hand = RegretOptimalRegressor(standardise=False).fit(
        scaler.transform(X), y, sources={name: (scaler.transform(U), v) for name, (U, v) in SOURCES.items()}
    )
    np.testing.assert_allclose(model.predict(X), by_hand.predict(scaler.transform(X)), rtol=1e-12)


def test_targets_are_transformed_for_all_domains():
    model = SourcesPipeline([("m", RegretOptimalRegressor())], target_transformer=FunctionTransformer(np.log, np.exp))
    positive = {name: (U, np.exp(v)) for name, (U, v) in SOURCES.items()}
    model.fit(X, np.exp(y), sources=positive)
    logs = RegretOptimalRegressor().fit(X, y, sources=SOURCES)
    np.testing.assert_allclose(model.predict(X), np.exp(logs.predict(X)), rtol=1e-9)
    ends = logs.predict_interval(X, coverage=0.5)
    np.testing.assert_allclose(model.predict_interval(X, coverage=0.5), np.exp(ends), rtol=1e-9)
    falling = model.set_params(target_transformer=FunctionTransformer(lambda t: -t, lambda t: -t)).fit(X, y)
    lower, upper = falling.predict_interval(X, coverage=0.5)
    assert np.all(lower < upper)
    with pytest.raises(ParameterError, match="use predict_interval"):
        model.predict(X, return_std=True)


def test_cross_validation_fits_the_steps_again():
    steps = [("curves", PolynomialFeatures(2)), ("nothing", "passthrough"), ("m", RegretOptimalRegressor())]
    scores = cross_val_score(SourcesPipeline(steps), X, y, cv=3, params={"sources": Sources(SOURCES)})
    assert scores.shape == (3,)
    assert np.all(np.isfinite(scores))


@pytest.mark.parametrize("library", [pandas, polars], ids=["pandas", "polars"])
def test_frames_with_text(library):
    (focal, targets), source = frame(20, 0, library), frame(60, 1, library)
    pipeline = SourcesPipeline([("encode", encoder()), ("m", RegretOptimalRegressorCV(None))])
    pipeline.fit(focal, targets, sources={"b": source})
    assert pipeline.score(focal, targets) > 0.95
    with pytest.raises(DataError, match="lacks the column 'colour'"):
        pipeline.fit(focal, targets, sources={"b": (source[0][["size"]], source[1])})


@pytest.mark.parametrize("library", [pandas, polars], ids=["pandas", "polars"])
def test_a_feature_map_sees_the_raw_frame(library):
    (focal, targets), source, new = frame(20, 0, library), frame(60, 1, library), frame(5, 2, library)[0]
    fitted = encoder().fit(source[0])
    named = RegretOptimalRegressorCV(SklearnFeatures(fitted)).fit(focal, targets, sources={"b": source})
    numbers = [fitted.transform(part) for part in (focal, source[0], new)]
    plain = RegretOptimalRegressorCV(None).fit(numbers[0], targets, sources={"b": (numbers[1], source[1])})
    np.testing.assert_allclose(named.predict(new), plain.predict(numbers[2]), rtol=1e-12)


def test_other_estimators_with_maps_of_raw_frames():
    (focal, targets), source, new = frame(20, 0, pandas), frame(60, 1, pandas), frame(5, 2, pandas)[0]
    features = SklearnFeatures(encoder().fit(source[0]))
    fixed = RegretOptimalRegressor(features).fit(focal, targets).partial_fit(sources={"b": source})
    numbers = [features.transform(part) for part in (focal, source[0], new)]
    plain = RegretOptimalRegressor().fit(numbers[0], targets).partial_fit(sources={"b": (numbers[1], source[1])})
    np.testing.assert_allclose(fixed.predict(new), plain.predict(numbers[2]), rtol=1e-12)
    classes = RegretOptimalClassifier(features).fit(focal, targets > 1, sources={"b": (source[0], source[1] > 1)})
    signs = RegretOptimalClassifier().fit(numbers[0], targets > 1, sources={"b": (numbers[1], source[1] > 1)})
    np.testing.assert_allclose(classes.predict_proba(new), signs.predict_proba(numbers[2]), rtol=1e-12)
    labels = ["a"] * 20 + ["b"] * 60
    both = MultiDomainRegressor(features).fit(
        pandas.concat([focal, source[0]]), np.concatenate([targets, source[1]]), domain=labels
    )
    assert both.score(focal, targets, domain=["a"] * 20) > 0.95
