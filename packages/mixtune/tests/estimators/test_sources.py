import numpy as np
import pytest

from mixtune import Domain, Domains
from mixtune.errors import DataError
from mixtune.estimators import Sources, as_sources, split_sample_domain, split_table


def test_nothing_in_it_invites_slicing():
    sources = Sources({"b": ([[1.0]], [1.0])})
    for name in ("__len__", "__getitem__", "shape", "__array__", "iloc", "__iter__"):
        assert not hasattr(sources, name)
    assert sources.names == ("b",)
    assert repr(Sources({str(i): ([[1.0]], [1.0]) for i in range(7)})).endswith("'5', ...)")


def test_what_members_may_be():
    domain = Domain("x", [[1.0, 2.0]], [3.0], columns=("p", "q"))
    sources = dict(Sources({"a": domain, 3: ([[1.0]], [1.0], [2.0]), "c": [[[1.0]], [1.0]]}).items())
    assert list(sources) == ["a", "3", "c"]
    assert sources["a"].columns == ("p", "q")
    assert sources["3"].sample_weight == [2.0]


def test_domains_give_their_sources():
    domains = Domains.from_dict({"a": ([[0.0]], [0]), "b": ([[1.0]], [1]), "c": ([[1.0]], [1])}, focal="b")
    assert Sources.from_domains(domains).names == ("a", "c")
    assert as_sources(domains).names == ("a", "c")
    assert as_sources(None) is None
    assert as_sources({}) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([([[1.0]], [1.0])], "wrap it in Sources"),
        ("b", "wrap it in Sources"),
        ({"b": [[1.0]]}, 'source "b" must be'),
        ({"b": np.ones((2, 2))}, 'source "b" must be'),
        ({1: ([[1.0]], [1.0]), "1": ([[1.0]], [1.0])}, "more than one source is named 1"),
    ],
)
def test_what_is_refused(value, words):
    with pytest.raises(DataError, match=words):
        as_sources(value)


def test_a_million_labels_are_an_identifier():
    pair = ([[1.0]], [1.0])
    with pytest.raises(DataError, match="identifier of rows"):
        Sources(dict.fromkeys(range(100_001), pair))
    values = np.arange(1e6)
    with pytest.raises(DataError, match="999999 sources"):
        Sources.from_table({"d": np.arange(10**6), "x": values, "y": values}, target="y", domain="d", focal=3)


def test_skada_labels():
    X, y = np.arange(12.0).reshape(6, 2), np.array([0.0, 1.0, 2.0, 3.0, np.nan, 5.0])
    split = split_sample_domain(X, y, [1, 1, 3, -2, -2, -2])
    assert split.y.tolist() == [3.0, 5.0]
    np.testing.assert_array_equal(split.X, X[[3, 5]])
    assert split.sources.names == ("1", "3")
    assert Sources.from_sample_domain(X, y, [1, 1, 3, -2, -2, -2]).names == ("1", "3")
    assert np.isnan(y[4])  # the caller's y is left alone


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1, 2, 3], "0 negative labels"),
        ([1, -2, -3], "2 negative labels"),
        ([0, 1, -1], "positive for sources"),
        ([0.5, 1, -1], "positive for sources"),
        ([1, -1], "2 labels for 3"),
    ],
)
def test_skada_labels_refused(labels, words):
    with pytest.raises(DataError, match=words):
        split_sample_domain(np.ones((3, 1)), np.ones(3), labels)


def test_skada_target_without_labels():
    with pytest.raises(DataError, match="label at least one"):
        split_sample_domain(np.ones((2, 1)), [1.0, np.nan], [1, -1])


def test_tables():
    table = {"site": ["a", "b", "a"], "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
    split = split_table(table, target="y", domain="site", focal="a")
    assert split.X.tolist() == [[1.0], [3.0]]
    assert split.sources.names == ("b",)
    with pytest.raises(DataError, match='there is no domain "z"'):
        Sources.from_table(table, target="y", domain="site", focal="z")
