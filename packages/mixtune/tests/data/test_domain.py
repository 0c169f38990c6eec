"""One dataset: what is accepted, what is kept, what is refused and how the refusal reads."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from extras import extra
from mixtune.data import Domain, Domains
from mixtune.errors import DataError
from mixtune.estimators import Sources
from mixtune.features import Identity

pd = extra("pandas")
torch = extra("torch")

X = np.arange(6.0).reshape(3, 2)
Y = np.array([1.0, 2.0, 3.0])


@given(
    hnp.arrays(
        st.sampled_from([np.int8, np.int64, np.bool_, np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 6), st.integers(1, 4)),
        elements={"allow_nan": False, "allow_infinity": False},
    )
)
def test_numbers_of_any_kind_are_kept_as_floats(values):
    domain = Domain("a", values, values[:, 0])
    assert domain.X.dtype == (np.float32 if values.dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(domain.X, values.astype(np.float64))
    assert (domain.n_rows, domain.n_columns, domain.n_outputs) == (*values.shape, 1)
    np.testing.assert_array_equal(domain.targets[:, 0], domain.y)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_later_writes_by_the_caller_do_not_reach_the_domain(make):
    inputs, targets = make([[1.0, 2.0], [3.0, 4.0]]), make([1.0, 2.0])
    domain = Domain("a", inputs, targets)
    inputs[0, 0] = 99.0
    targets[0] = 99.0
    assert float(domain.X[0, 0]) == 1.0
    assert float(domain.y[0]) == 1.0


def test_numpy_data_is_read_only_and_fields_are_frozen():
    domain = Domain("a", X, Y)
    with pytest.raises(ValueError, match="read-only"):
        domain.X[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        domain.targets[0, 0] = 1
    with pytest.raises(AttributeError):
        domain.X = X
    assert X.flags.writeable


def test_shapes():
    assert Domain("a", [1, 2, 3], [1, 2, 3]).X.shape == (3, 1)
    domain = Domain("a", X, np.ones((3, 2)))
    assert domain.n_outputs == 2
    assert domain.targets.shape == (3, 2)
    assert repr(domain) == "Domain('a', 3 rows, 2 columns, 2 outputs)"
    assert Domain("a", X.T[:, ::-1], [1, 2]).X.flags.c_contiguous


def test_tensors_stay_tensors():
    inputs = torch.ones((2, 3), requires_grad=True)
    domain = Domain("a", inputs, torch.tensor([1, 2]))
    assert domain.X.dtype == torch.float32
    assert domain.y.dtype == torch.float64
    assert not domain.X.requires_grad
    assert domain.targets.shape == (2, 1)
    assert Domain("a", torch.ones(3, 2).T, torch.ones(2)).X.is_contiguous()


def test_frames_bring_their_column_names():
    frame = pd.DataFrame({"size": [1, 2], "new": [True, False], "age": [0.5, 1.5]}, index=[7, 9])
    domain = Domain("a", frame, pd.Series([1, 2], index=[7, 9]))
    assert domain.columns == ("size", "new", "age")
    np.testing.assert_array_equal(domain.X, [[1, 1, 0.5], [2, 0, 1.5]])
    assert domain.y.shape == (2,)
    assert Domain("a", frame.astype("float32"), [1, 2]).X.dtype == np.float32
    assert Domain("a", frame.astype({"size": "Int64"}), frame[["age", "size"]]).n_outputs == 2
    assert Domain("a", pa.table({"x": [1, 2]}), [1, 2]).columns == ("x",)
    assert Domain("a", pd.Series([1.0, 2.0], name="x"), [1, 2]).columns == ("x",)


def test_names_for_arrays():
    assert Domain("a", X, Y, columns=["u", "v"]).columns == ("u", "v")
    for names in (["u"], ["u", "u"]):
        with pytest.raises(DataError, match="2 columns"):
            Domain("a", X, Y, columns=names)
    with pytest.raises(DataError, match="its own column names"):
        Domain("a", pd.DataFrame({"x": [1]}), [1], columns=["z"])


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (X, Y[:2], 'fewer targets than rows: X of domain "a" has 3 rows and y has 2'),
        (X[:2], Y, 'more targets than rows: X of domain "a" has 2 rows and y has 3'),
        (np.empty((0, 2)), np.empty(0), "at least one row"),
        (np.empty((2, 0)), Y[:2], "at least one row and one column"),
        (np.ones((2, 2, 2)), Y[:2], r"shape \(2, 2, 2\)"),
        (X, 1.0, r"y has shape \(\)"),
        ([["a", "b"]], [1], 'X of domain "a" holds text'),
        (X, np.array([1, None, 2]), 'y of domain "a" holds objects'),
        (np.array(["2020-01-01"], "datetime64[D]"), [1], "holds dates"),
        ([1j], [1], "complex"),
        (torch.tensor([1j]), torch.ones(1), "complex"),
        ([[1, 2], [3]], [1, 2], "cannot be read as an array"),
        (X, torch.ones(3), "only one of X and y"),
        (pd.DataFrame({"x": ["u", "v"]}), [1, 2], 'column "x" of X of domain "a" holds text'),
        (pd.DataFrame({"x": [1, None]}), [1, 2], 'column "x" of X of domain "a" has 1 missing value in 2 rows'),
        (np.ma.masked_array([1, 2], [False, True]), [1, 2], "1 masked value"),
    ],
)
def test_refusals_say_what_is_wrong(inputs, targets, message):
    with pytest.raises(DataError, match=message):
        Domain("a", inputs, targets)


def test_sparse_inputs_are_refused_with_the_remedy():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(DataError, match="toarray"):
        Domain("a", sparse.csr_array(X), Y)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_values_that_are_not_finite_are_counted_by_column(make):
    bad = make([[1.0, np.nan, 0.0], [np.inf, np.nan, 0.0]])
    good = make([1.0, 2.0])
    with pytest.raises(DataError, match='X of domain "b" has 3 values that are NaN or infinite, in columns 0, 1;'):
        Domain("b", bad, good)
    with pytest.raises(DataError, match='in columns "u", "v";'):
        Domain("b", bad, good, columns=("u", "v", "w"))
    with pytest.raises(DataError, match='y of domain "b" has 1 value that is NaN or infinite, in column 0;'):
        Domain("b", bad[:, 2:], bad[:, 0])
    with pytest.raises(DataError, match="0, 1, 2, 3, 4 and 2 more"):
        Domain("b", make([[np.nan] * 7]), good[:1])


@pytest.mark.parametrize("name", ["", 3, None])
def test_names_are_texts(name):
    with pytest.raises(DataError, match="must be text that is not empty"):
        Domain(name, X, Y)


def test_sample_weights_are_checked_and_follow_the_rows():
    domain = Domain("a", X, Y, sample_weight=np.arange(len(Y)))
    assert domain.sample_weight.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        domain.sample_weight[0] = 1
    np.testing.assert_array_equal(domain.take([2, 0]).sample_weight, [2, 0])
    assert Domain("a", X, Y, sample_weight=2).sample_weight.tolist() == [2.0] * len(Y)
    tensors = Domain("a", torch.tensor(X), torch.tensor(Y), sample_weight=np.ones(len(Y)))
    assert isinstance(tensors.sample_weight, torch.Tensor)
    for wrong, message in ((np.ones(1), "one number per row"), (-np.ones(len(Y)), ">= 0"), (0, "zero for every row")):
        with pytest.raises(DataError, match=message):
            Domain("a", X, Y, sample_weight=wrong)


def test_sample_weights_reach_domains_and_sources():
    weight = [1.0, 0.0, 2.0]
    domains = Domains.from_dict({"a": (X, Y), "b": (X, Y, weight)}, focal="a")
    assert domains["a"].sample_weight is None
    assert domains.map(Identity(2))["b"].sample_weight.tolist() == weight
    ((_, source),) = Sources.from_domains(domains).items()
    assert source.sample_weight.tolist() == weight


def test_a_view_is_checked_and_not_copied():
    inputs, targets = np.array(X, dtype=np.float64), np.array(Y, dtype=np.float64)
    domain = Domain.view("a", inputs, targets, sample_weight=targets**2 + 1)
    assert np.shares_memory(domain.X, inputs)
    assert np.shares_memory(domain.take(slice(1, None)).X, inputs)
    assert not domain.X.flags.writeable
    assert inputs.flags.writeable
    assert domain.columns is None
    with pytest.raises(DataError, match="NaN or infinite"):
        Domain.view("a", np.full((2, 1), np.nan), [1.0, 2.0])
    with pytest.raises(DataError, match="fewer targets than rows"):
        Domain.view("a", inputs, targets[:-1])
