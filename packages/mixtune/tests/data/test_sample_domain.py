"""Rows by skada's convention: the same reading for domains and for estimators."""

import numpy as np
import pytest

from extras import extra
from mixtune.data import Domains, rows_by_label
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import split_sample_domain

pd = extra("pandas")

NAN = float("nan")
X = np.arange(14.0).reshape(7, 2)
LABELS = [2, -3, 1, -3, 2, -4, -3]


def test_domains_are_the_split():
    y = np.array([0.0, 1.0, 2.0, NAN, 4.0, 5.0, 6.0])
    domains = Domains.from_sample_domain(X, y, LABELS, focal=-3)
    assert domains.names == ("1", "2", "-3")
    assert domains.focal == "-3"
    np.testing.assert_array_equal(domains.focal_domain.X, X[[1, 6]])
    np.testing.assert_array_equal(domains["2"].y, [0.0, 4.0])
    split = split_sample_domain(X, y, LABELS, focal=-3)
    np.testing.assert_array_equal(split.X, domains.focal_domain.X)
    np.testing.assert_array_equal(split.y, domains.focal_domain.y)
    assert split.sources.names == ("1", "2")


def test_frames_keep_their_names_and_several_outputs_are_all_needed():
    y = np.array([[0.0, 0.0], [1.0, NAN], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0], [6.0, 6.0]])
    domains = Domains.from_sample_domain(pd.DataFrame(X, columns=["a", "b"]), y, LABELS, focal=-3)
    assert domains.focal_domain.columns == ("a", "b")
    np.testing.assert_array_equal(domains.focal_domain.y, y[[3, 6]])


def test_one_target_needs_no_name():
    rows = rows_by_label(np.arange(3), [5, -1, 5])
    assert rows.focal == "-1"
    assert rows.sources["5"].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("labels", "y", "focal", "error", "words"),
    [
        (LABELS, np.arange(7.0), None, DataError, "2 negative labels"),
        (LABELS, np.arange(7.0), -5, ParameterError, "focal=-5 is not a target"),
        (LABELS, np.arange(7.0), 2, ParameterError, "focal=2 is not a target"),
        ([1, 2, 1, 1, 1, 1, 1], np.arange(7.0), None, DataError, "0 negative labels"),
        (LABELS[:6], np.arange(7.0), -3, DataError, "6 labels for 7 targets"),
        ([1.0, -2.0] * 3 + [1.0], np.arange(7.0), None, DataError, "one whole number per row"),
        ([0, -2, 1, 1, 1, 1, 1], np.arange(7.0), None, DataError, "one whole number per row"),
        (LABELS, [0.0, NAN, 2.0, NAN, 4.0, 5.0, NAN], -3, DataError, "no row of the target domain has a label"),
        (LABELS, [NAN, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], -3, DataError, 'y of domain "2" has 1 value'),
    ],
)
def test_what_is_refused(labels, y, focal, error, words):
    with pytest.raises(error, match=words):
        Domains.from_sample_domain(X, y, labels, focal=focal)
