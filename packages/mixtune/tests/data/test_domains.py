"""Several datasets: order, focal domain, agreement between domains, and the grouping of rows by label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from extras import extra
from mixtune.data import Domain, Domains
from mixtune.errors import DataError, ParameterError

pd = extra("pandas")
torch = extra("torch")


def a_domain(name, rows=2, columns=2, outputs=1, names=None):
    y = np.ones(rows) if outputs == 1 else np.ones((rows, outputs))
    return Domain(name, np.ones((rows, columns)), y, names)


@pytest.fixture
def domains():
    return Domains((a_domain("a", 1), a_domain("b", 2), a_domain("c", 3)), focal="b")


def test_order_and_focal(domains):
    assert domains.names == ("a", "b", "c")
    assert domains.focal_index == 1
    assert domains.focal_domain is domains["b"] is domains[1]
    assert [domain.name for domain in domains.sources] == ["a", "c"]
    assert [domain.n_rows for domain in domains] == [1, 2, 3]
    assert len(domains) == 3
    assert "a" in domains
    assert "z" not in domains
    assert domains[-1].name == "c"
    assert repr(domains) == "Domains(3 domains, focal='b', 6 rows, 2 columns, 1 output)"
    with pytest.raises(AttributeError):
        domains.focal = "a"


def test_changes_make_new_collections(domains):
    assert domains.with_focal("c").focal == "c"
    assert domains.without("a").names == ("b", "c")
    assert domains.without("a").focal == "b"
    assert domains.sorted_focal_first().names == ("b", "a", "c")
    assert domains.names == ("a", "b", "c")
    with pytest.raises(ParameterError, match="focal domain and cannot be left out"):
        domains.without("b")


def test_unknown_names_get_a_suggestion():
    domains = Domains((a_domain("north"), a_domain("south")), focal="north")
    with pytest.raises(DataError, match='no domain "nort"; did you mean "north"'):
        domains.with_focal("nort")
    with pytest.raises(DataError, match='known: "north", "south"'):
        domains["x"]
    with pytest.raises(DataError, match='no domain "x"'):
        domains.without("x")
    with pytest.raises(IndexError):
        domains[2]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (a_domain("b", columns=3), 'domain "b" has 3 columns, the focal domain "a" has 2; pass the same columns'),
        (a_domain("b", outputs=2), 'domain "b" has 2 outputs, the focal domain "a" has 1; pass the same outputs'),
        (a_domain("b", names=("u", "w")), 'missing "v" and extra "w"'),
        (a_domain("b", names=("v", "u")), "another order"),
        (a_domain("a"), 'more than one domain is named "a"'),
    ],
)
def test_domains_must_agree(other, message):
    with pytest.raises(DataError, match=message):
        Domains((a_domain("a", names=("u", "v")), other), focal="a")


def test_libraries_and_devices_must_agree():
    tensors = Domain("b", torch.ones(2, 2), torch.ones(2))
    with pytest.raises(DataError, match="only one of them holds PyTorch tensors"):
        Domains((a_domain("a"), tensors), focal="a")
    # Nothing can be checked about rows on this device, so they go in after the checks.
    on_meta = Domain("b", torch.ones(2, 2), torch.ones(2))
    for name in ("X", "y"):
        object.__setattr__(on_meta, name, getattr(on_meta, name).to("meta"))
    with pytest.raises(DataError, match="are on meta and cpu"):
        Domains((Domain("a", torch.ones(2, 2), torch.ones(2)), on_meta), focal="a")


def test_names_with_braces_do_not_upset_the_message():
    with pytest.raises(DataError, match=r"\{0\} has"):
        Domains.from_dict({"a": ([[1]], [1]), "{0} has": ([[1, 2]], [1])}, focal="a")


def test_unnamed_columns_go_with_named_ones():
    assert len(Domains((a_domain("a", names=("u", "v")), a_domain("b")), focal="a")) == 2


def test_from_dict():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    domains = Domains.from_dict({"p": (frame, [1, 2]), "q": (frame, [3, 4])}, focal="q")
    assert domains.names == ("p", "q")
    assert domains["p"].columns == ("x",)
    with pytest.raises(DataError, match=r'domain "p" must be a pair'):
        Domains.from_dict({"p": frame}, focal="p")
    with pytest.raises(DataError, match="no domains"):
        Domains.from_dict({}, focal="p")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 3), st.booleans())
def test_rows_go_to_their_label_in_order(labels, columns, tensors):
    X = np.arange(len(labels) * columns, dtype=float).reshape(-1, columns)
    y = -np.arange(len(labels), dtype=float)
    pair = (torch.tensor(X), torch.tensor(y)) if tensors else (X, y)
    domains = Domains.from_arrays(*pair, labels=labels, focal=labels[-1])
    assert domains.names == tuple(str(label) for label in dict.fromkeys(labels))
    assert domains.focal == str(labels[-1])
    for domain in domains:
        mine = np.array(labels) == int(domain.name)
        np.testing.assert_array_equal(np.asarray(domain.X), X[mine])
        np.testing.assert_array_equal(np.asarray(domain.y), y[mine])


def test_grouped_rows_are_copies_and_read_only():
    X, y = np.ones((4, 2)), np.ones((4, 3))
    domains = Domains.from_arrays(X, y, labels=["a", "a", "b", "b"], focal="a")
    X[:] = 5
    y[:] = 5
    assert domains["a"].X.max() == 1
    assert domains["b"].targets.max() == 1
    assert domains["b"].n_outputs == 3
    assert not domains["b"].X.flags.writeable


@pytest.mark.parametrize(
    "labels", [np.array([2, 1, 2]), pd.Series([2, 1, 2]), torch.tensor([2, 1, 2]), np.array([2.0, 1.0, 2.0]), (2, 1, 2)]
)
def test_labels_of_many_kinds(labels):
    domains = Domains.from_arrays([[1], [2], [3]], [1, 2, 3], labels=labels, focal=1)
    assert [float(name) for name in domains.names] == [2, 1]
    assert float(domains.focal) == 1


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, "", " "], ids=str)
def test_missing_labels_are_counted(missing):
    labels = np.array(["a", missing, "b", missing], dtype=object)
    with pytest.raises(DataError, match=r"2 of 4 rows have no label \(the first is data row 2\)"):
        Domains.from_arrays(np.ones((4, 1)), np.ones(4), labels=labels, focal="a")


def test_missing_labels_in_a_float_array():
    with pytest.raises(DataError, match="2 of 3 rows have no label"):
        Domains.from_arrays(np.ones((3, 1)), np.ones(3), labels=np.array([np.nan, 1, np.nan]), focal=1)


def test_bad_labels():
    X, y = np.ones((3, 1)), np.ones(3)
    with pytest.raises(DataError, match="2 labels for 3 rows"):
        Domains.from_arrays(X, y, labels=["a", "b"], focal="a")
    with pytest.raises(DataError, match="one text or number per row"):
        Domains.from_arrays(X, y, labels=[["a"], ["b"], ["a"]], focal="a")
    with pytest.raises(DataError, match='more than one domain is named "1"'):
        Domains.from_arrays(X, y, labels=[1, "1", 1], focal=1)
    with pytest.raises(DataError, match='no domain "z"'):
        Domains.from_arrays(X, y, labels=["a", "b", "a"], focal="z")


def test_bad_values_are_traced_to_their_domain():
    X = np.ones((4, 2))
    X[3, 1] = np.nan
    with pytest.raises(DataError, match='X of domain "b" has 1 value that is NaN or infinite, in column 1'):
        Domains.from_arrays(X, np.ones(4), labels=["a", "b", "a", "b"], focal="a")


def test_very_many_labels():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20_000, 100_000)
    X = rng.standard_normal((100_000, 2))
    domains = Domains.from_arrays(X, X[:, 0], labels=labels, focal=labels[0])
    assert len(domains) == len(np.unique(labels))
    assert sum(domain.n_rows for domain in domains) == 100_000
    np.testing.assert_array_equal(domains[str(labels[5])].X, X[labels == labels[5]])


def test_map_replaces_the_inputs():
    class Doubled:
        def transform(self, X):
            return np.hstack([X, 2 * X])

    domains = Domains((a_domain("a", names=("u", "v")), a_domain("b", 3)), focal="b").map(Doubled())
    assert domains.focal == "b"
    assert domains["a"].columns is None
    np.testing.assert_array_equal(domains["b"].X, np.tile([1.0, 1.0, 2.0, 2.0], (3, 1)))
    np.testing.assert_array_equal(domains["b"].y, np.ones(3))


def test_map_refuses_what_is_not_a_map():
    domains = Domains((a_domain("a"),), focal="a")
    for wrong in (np.tanh, StandardScaler, "relu"):
        with pytest.raises(ParameterError, match=r"it has no transform\(X\)"):
            domains.map(wrong)


def test_space_around_labels_does_not_count():
    labels = ["x", " y", "x ", "y", "x"]
    domains = Domains.from_arrays(np.arange(5.0), np.arange(5.0), labels=labels, focal="y ")
    assert domains.names == ("x", "y")
    assert domains.focal == "y"
    assert domains["x"].y.tolist() == [0, 2, 4]
    assert domains["y"].y.tolist() == [1, 3]


def test_a_focal_label_is_one_label():
    with pytest.raises(ParameterError, match=r"focal=\['a'\] must be one label"):
        Domains.from_arrays([[1], [2]], [1, 2], labels=["a", "b"], focal=["a"])
    with pytest.raises(ParameterError, match="must be one label"):
        Domains.from_table({"d": ["a"], "x": [1], "y": [2]}, target="y", domain="d", focal=["a"])
    with pytest.raises(DataError, match="there is no domain"):
        Domains.from_dict({"a": ([[0.0]], [0])}, focal=["a"])


def test_vectors_and_matrices_of_targets_do_not_mix():
    X = [[1.0], [2.0]]
    with pytest.raises(DataError, match="all of them as"):
        Domains.from_dict({"a": (X, [1.0, 2.0]), "b": (X, [[1.0], [2.0]])}, focal="a")
