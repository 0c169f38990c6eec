"""What comes in is read by name where it has names, and masked values are refused: by Domain and estimators alike."""

import numpy as np
import pyarrow as pa
import pytest

from extras import extra
from mixtune import Domain, Domains, Moments, RandomFeatures, RegretOptimalClassifier, RegretOptimalRegressorCV
from mixtune.data import choose_inputs, read_training
from mixtune.errors import DataError
from mixtune.streaming import StreamedSources

pd = extra("pandas")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = X @ [1.0, 2.0, 3.0]
ONES = np.ones(30)
NAMES = ["a", "b", "c"]


class Frame:
    """Named columns and nothing else that pandas or Arrow know; NumPy reads it by position."""

    def __init__(self, columns):
        self._columns, self.columns = columns, list(columns)

    def __len__(self):
        return 30

    def __getitem__(self, name):
        return self._columns[name]

    def __array__(self, dtype=None, copy=None):
        return np.column_stack(list(self._columns.values()))


def frame(names):
    return Frame(columns(names))


def batch(names):
    return pa.RecordBatch.from_pydict(columns(names))


def regress(*focal, sources):
    return RegretOptimalRegressorCV(feature_map=None).fit(*focal, sources=sources)


def mask(array, row=2):
    masked = np.ma.array(array, mask=np.zeros_like(array, dtype=bool))
    masked[row] = np.ma.masked
    return masked


def columns(names):
    return {name: X[:, NAMES.index(name)] for name in names}


@pytest.mark.parametrize("kind", [frame, batch, columns])
def test_foreign_frames_are_read_by_name(kind):
    named = pd.DataFrame(X, columns=NAMES)
    domain = Domain("a", kind(["c", "a", "b"]), Y)
    assert domain.columns == ("c", "a", "b")
    np.testing.assert_array_equal(domain.X, X[:, [2, 0, 1]])
    right = regress(named, Y, sources={"b": (named, Y)}).predict(named)
    there = regress(named, Y, sources={"b": (kind(["c", "a", "b"]), Y)})
    np.testing.assert_allclose(there.predict(named), right, rtol=1e-9)
    focal = regress(kind(NAMES), Y, sources={"b": (named[["b", "c", "a"]], Y)})
    assert list(focal.feature_names_in_) == NAMES
    np.testing.assert_allclose(focal.predict(named), right, rtol=1e-9)
    np.testing.assert_allclose(focal.predict(kind(NAMES)), right, rtol=1e-9)
    with pytest.raises(ValueError, match="same order"):
        focal.predict(kind(["c", "a", "b"]))


def test_foreign_frames_as_tables():
    columns = {"place": ["u", "v"] * 15, "y": Y, "x": X[:, 0]}
    domains = Domains.from_table(Frame(columns), target="y", domain="place", focal="u")
    np.testing.assert_array_equal(domains["v"].X[:, 0], X[1::2, 0])
    twice = Frame(columns)
    twice.columns = ["x", "y", "x"]
    with pytest.raises(DataError, match='more than one column named "x"'):
        Domain("a", twice, Y)
    with pytest.raises(DataError, match='more than one column named "x"'):
        regress(twice, Y, sources={"b": (X, Y)})
    twice.columns = ["x", "z"]
    with pytest.raises(DataError, match="X of domain \"a\" cannot be read as columns of one type each: 'z'"):
        Domain("a", twice, Y)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y, w: Domain("a", X, y, sample_weight=w),
        lambda X, y, w: Domain.view("a", X, y, sample_weight=w),
        lambda X, y, w: regress(X, y, w, sources={"b": (X, y)}).predict(X),
        lambda X, y, w: regress(np.asarray(X), np.asarray(y), sources={"b": (X, y, w)}),
        lambda X, y, w: RegretOptimalClassifier().fit(X, y > 0, w, sources={"b": (X, y > 0)}),
        lambda X, y, w: RegretOptimalClassifier().fit(np.asarray(X), np.asarray(y) > 0, sources={"b": (X, y > 0, w)}),
    ],
    ids=["domain", "view", "focal", "source", "classifier", "class source"],
)
def test_masked_values_are_refused_and_empty_masks_pass(call):
    for given in [(mask(X), Y, ONES), (X, mask(Y), ONES), (X, Y, mask(ONES))]:
        with pytest.raises(DataError, match=r"has \d+ masked values?; fill or drop these rows"):
            call(*given)
    call(np.ma.array(X), np.ma.array(Y), np.ma.array(ONES))


def test_masked_values_are_refused_elsewhere():
    fitted = regress(X, Y, sources={"b": (X, Y)})
    calls = [
        lambda: fitted.predict(mask(X)),
        lambda: Domain("a", list(mask(X)), Y),
        lambda: Domains.from_arrays(mask(X), Y, labels=["a", "b"] * 15, focal="a"),
        lambda: Domains.from_sample_domain(X, Y, mask(np.array([1, -2] * 15))),
        lambda: regress(X, Y, sources=StreamedSources({"b": (mask(X), Y)})),
        lambda: regress(X, Y, sources=StreamedSources((X, mask(Y)), domain=["u", "v"] * 15)),
        lambda: RandomFeatures(n_inputs=3, width=4, seed=0).transform(mask(X)),
        lambda: Moments.from_rows(mask(X), Y),
    ]
    for call in calls:
        with pytest.raises(DataError, match=r"has \d+ masked value"):
            call()


@pytest.mark.parametrize("sign", ["", "-", "+"])
def test_numbers_of_very_many_digits_are_named(sign, tmp_path):
    file = tmp_path / "data.csv"
    rows = [f"{i},{i / 2},{'uv'[i % 2]}" for i in range(12)]
    for long in (f"{sign}{'9' * 5000},1,u", f"1,{sign}{'9' * 5000},u"):
        file.write_text("\n".join(["x,y,place", *rows, long]) + "\n")
        with pytest.raises(DataError, match="holds whole numbers beyond") as raised:
            read_training(file, target="y", domain="place", focal="u")
        assert len(str(raised.value)) < 600
        with pytest.raises(DataError, match="has 1 infinite value"):
            Domains.from_files(file, target="y", domain="place", focal="u")
    with pytest.raises(DataError, match="beyond 64 bits"):
        Domains.from_table({"x": [10**5000], "y": [1], "d": ["a"]}, target="y", domain="d", focal="a")


def test_classes_of_very_many_digits_are_sorted(tmp_path):
    low, high = "8" * 5000, "1" * 5001
    table = pa.table({"x": np.arange(12.0), "y": [low, high] * 6})
    pa.parquet.write_table(table, tmp_path / "data.parquet")
    read = read_training(tmp_path / "data.parquet", target="y", target_kind="classes")
    assert read.encoder.target.classes == (low, high)


def test_inputs_are_chosen_in_linear_time():
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [f"c{place}" for place in range(2000)]
    table = pa.table({name: [1.0] for name in names})
    targets = [Name(name) for name in names[:1000]]
    chosen = choose_inputs(table, targets=targets, domain=None, columns=None, where="the table")
    assert chosen == tuple(names[1000:])
    assert compared < 20 * len(names)


def test_sources_that_disagree_where_the_focal_rows_have_no_names():
    sources = {"s": (pd.DataFrame(columns(NAMES)), Y), "t": (pd.DataFrame(columns(["b", "a", "c"])), Y)}
    with pytest.raises(DataError, match='domains "s" and "t" have the same columns in another order'):
        regress(X, Y, sources=sources)
    sources["t"] = pd.DataFrame(columns(NAMES)), Y
    np.testing.assert_allclose(regress(X, Y, sources=sources).predict(X), Y, atol=1e-3)


def test_frames_of_the_interchange_protocol_are_read_by_name():
    class Exchanged:
        def __init__(self, table):
            self._table = table

        def __dataframe__(self, **options):
            return self._table.__dataframe__(**options)

        def __array__(self, dtype=None, copy=None):
            return np.column_stack(self._table.columns)

    turned = Exchanged(pa.table(columns(["c", "a", "b"])))
    focal = pd.DataFrame(columns(NAMES))
    found = regress(focal, Y, sources={"s": (turned, Y)})
    np.testing.assert_allclose(found.predict(focal), regress(X, Y, sources={"s": (X, Y)}).predict(X))
