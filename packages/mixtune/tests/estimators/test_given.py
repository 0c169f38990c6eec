"""Frames and targets that are not numbers, given to fit and predict: the error names the column."""

import numpy as np
import pyarrow as pa
import pytest

from extras import extra
from mixtune import RegretOptimalClassifierCV, RegretOptimalRegressorCV
from mixtune.errors import DataError
from mixtune.estimators import JointRegressor, LocalRegressor

pd = extra("pandas")
pl = extra("polars")
dd = extra("dask.dataframe")


def frame(**more):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.standard_normal(12), "b": rng.standard_normal(12)} | more)


DATES = np.array(["2026-01-01"] * 12, dtype="datetime64[ns]")
TEXT = ["x", "y"] * 6
BAD = [
    (frame(b=TEXT), 'column "b" of X holds text'),
    (frame(b=pd.Categorical(TEXT)), 'column "b" of X holds text'),
    (frame(b=DATES), 'column "b" of X holds dates'),
    (frame(b=[None] * 12), 'column "b" of X has 12 missing values'),
    (pl.DataFrame({"a": np.arange(12.0), "b": TEXT}), 'column "b" of X holds text'),
    (pl.DataFrame({"a": np.arange(12.0), "b": pl.Series(TEXT, dtype=pl.Categorical)}), 'column "b" of X holds text'),
    (pa.table({"a": np.arange(12.0), "b": TEXT}), 'column "b" of X holds text'),
    (pa.table({"a": np.arange(12.0), "b": pa.array(DATES)}), 'column "b" of X holds dates'),
    (np.full((12, 2), np.datetime64("2026-01-01")), "X holds dates"),
    (dd.from_pandas(frame(b=TEXT), npartitions=2), 'column "b" of X holds text'),
]


@pytest.mark.parametrize("model", [RegretOptimalRegressorCV, LocalRegressor, RegretOptimalClassifierCV])
@pytest.mark.parametrize(("X", "message"), BAD)
def test_columns_that_are_not_numbers_are_named(model, X, message):
    y = np.arange(12) % 2
    with pytest.raises(DataError, match=message):
        model().fit(X, y)
    fitted = model().fit(frame(), y)
    with pytest.raises(DataError, match=message):
        fitted.predict(X)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (pd.to_datetime(DATES), "of y holds dates"),
        (pd.Series(DATES, name="day"), 'column "day" of y holds dates'),
        (np.array(["2026-01-01"] * 12, dtype="datetime64[D]"), "y holds dates"),
        (pa.array(DATES), "y holds dates"),
        ([np.datetime64("2026-01-01")] * 12, "y holds dates"),
        ([np.timedelta64(3, "D")] * 12, "y holds durations"),
        (TEXT, "y holds text"),
        (np.array(TEXT), "y holds text"),
        (pd.Series(TEXT, name="grade"), 'column "grade" of y holds text'),
        (pl.Series("grade", TEXT), 'column "grade" of y holds text'),
    ],
)
def test_targets_that_are_not_numbers_are_refused(y, message):
    with pytest.raises(DataError, match=message):
        RegretOptimalRegressorCV(feature_map=None).fit(frame(), y)


def test_what_holds_numbers_passes_whatever_its_type():
    rng = np.random.default_rng(1)
    plain, y = frame(), rng.standard_normal(12)
    wanted = LocalRegressor().fit(plain, y).predict(plain)
    kinds = [
        (plain.astype(object), y),
        (plain.astype("Float64"), pd.Series(y)),
        (pl.from_pandas(plain), pl.Series(y)),
        (plain.to_numpy().astype(object), y.astype(object)),
        (plain.to_numpy().tolist(), y.tolist()),
        (plain, pd.DataFrame({"y": y})["y"].astype(object)),
    ]
    for X, targets in kinds:
        np.testing.assert_allclose(LocalRegressor().fit(X, targets).predict(X), wanted)
    table = pa.Table.from_pandas(plain)
    np.testing.assert_allclose(LocalRegressor().fit(plain, y).predict(table), wanted)
    same = pa.table({"a": [1.0], "b": [1.0]})
    assert np.isfinite(LocalRegressor().fit(plain, y).predict(same)).all()
    lazy = dd.from_pandas(plain.astype(object), npartitions=2)
    np.testing.assert_allclose(LocalRegressor().fit(plain, y).predict(lazy), wanted)
    mixed = pd.DataFrame({"a": plain["a"], "b": pd.Series([True, 0.5, 10**30] * 4, dtype=object)})
    assert np.isfinite(LocalRegressor().fit(mixed, y).predict(mixed)).all()
    flags = frame(b=[True, False] * 6)
    assert np.isfinite(LocalRegressor().fit(flags, y).predict(flags)).all()


def test_classes_may_be_text():
    assert set(RegretOptimalClassifierCV(feature_map=None).fit(frame(), TEXT).predict(frame())) <= {"x", "y"}


def test_numbers_beyond_all_bounds_are_refused():
    huge = pd.Series([10**400] * 12, dtype=object)
    with pytest.raises(DataError, match="X holds whole numbers beyond 64 bits"):
        LocalRegressor().fit(frame(b=huge), np.arange(12.0))
    with pytest.raises(DataError, match="y holds whole numbers beyond 64 bits"):
        LocalRegressor().fit(frame(), huge)
    numbers = [[0.0], [1.0], [2.0]]
    for model in (LocalRegressor(), RegretOptimalClassifierCV(feature_map=None)):
        model.fit(numbers, [0, 1, 1])
        with pytest.raises(DataError, match="X holds whole numbers beyond 1e308"):
            model.predict([[10**400]])
    with pytest.raises(DataError, match="X holds whole numbers beyond 1e308"):
        RegretOptimalClassifierCV(feature_map=None).fit([[10**400], [1], [2]], [0, 1, 1])
    with pytest.raises(DataError, match="sample_weight must be one number per row: int too large"):
        LocalRegressor().fit(numbers, [0, 1, 1], sample_weight=[10**400, 1, 1])
    with pytest.raises(DataError, match="holds objects, not numbers"):
        LocalRegressor().fit(numbers, [0, 1, 1], sources={"a": (np.ones((2, 1), dtype=object), [1, 2])})
    with pytest.raises(DataError, match="whole numbers beyond 64 bits"):
        LocalRegressor().fit(numbers, [0, 1, 1], sources={"a": ([[10**400], [1]], [1, 2])})


@pytest.mark.parametrize("where", ["X", "y", "sources", "predict"])
def test_records_and_lazy_frames_are_refused(where):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10, 2)), rng.standard_normal(10)
    records = np.rec.fromarrays([X[:, 0], X[:, 1]], names="a,b")
    lazy = extra("polars").DataFrame({"a": X[:, 0], "b": X[:, 1]}).lazy()
    for odd, remedy in ((records, "pass a data frame"), (lazy, r"pass what its collect\(\) gives")):
        given = {"X": X, "y": y, "sources": X, "predict": X, where: odd}
        with pytest.raises(DataError, match=remedy):
            JointRegressor().fit(given["X"], given["y"], sources={"b": (given["sources"], y)}).predict(given["predict"])
