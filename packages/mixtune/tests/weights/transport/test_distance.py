"""The public functions: what they accept, refuse, and promise."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune.weights.transport import distances_to, pooled_diameter, sampling_floor, wasserstein_distance


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class TestInputs:
    def test_lists_and_single_precision(self):
        A, B = [[0.0, 0.0], [1.0, 0.0]], np.array([[0.0, 2.0], [1.0, 2.0]], dtype=np.float32)
        assert wasserstein_distance(A, B).value == pytest.approx(2.0, rel=1e-14)

    def test_tensors(self, rng):
        torch = pytest.importorskip("torch")
        A, B = rng.standard_normal((9, 3)), rng.standard_normal((5, 3))
        found = wasserstein_distance(torch.tensor(A, requires_grad=True), torch.tensor(B))
        assert found == wasserstein_distance(A, B)

    def test_arguments_are_left_alone(self, rng):
        A, B = rng.standard_normal((9, 3)), rng.standard_normal((5, 3))
        before = A.copy(), B.copy()
        A.flags.writeable = B.flags.writeable = False
        for method in ("exact", "bracket", "sliced"):
            wasserstein_distance(A, B, method=method)
        np.testing.assert_array_equal(A, before[0])
        np.testing.assert_array_equal(B, before[1])

    @pytest.mark.parametrize(
        ("A", "B", "message"),
        [
            ([[np.nan, 1.0], [np.inf, 2.0]], [[1.0, 2.0]], "A has 2 entries that are NaN or infinite"),
            ([[1.0, 2.0]], np.empty((0, 2)), "B is empty"),
            (np.empty((3, 0)), np.empty((3, 0)), "A is empty"),
            (np.ones((3, 2)), np.ones((3, 4)), "B has 4 columns, A has 2; pass the same columns"),
            (np.ones((3, 2, 2)), np.ones((3, 2)), "A has 3 dimensions"),
            (1.0, [1.0], "A has 0 dimensions"),
            ([["a", "b"]], [["a", "b"]], "pass numbers"),
            ([[1.0, 2.0], [3.0]], [[1.0]], "A is ragged"),
            ([1j, 2.0], [1.0], "pass numbers"),
            (np.ma.masked_invalid([1.0, np.nan]), [1.0], "masked"),
        ],
    )
    def test_bad_data_is_named(self, A, B, message):
        with pytest.raises(DataError, match=message):
            wasserstein_distance(A, B)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"method": "sinkhorn"}, "method must be one of 'auto', 'exact'.*got 'sinkhorn'"),
            ({"directions": 1}, "directions"),
            ({"subsample": 0}, "subsample"),
            ({"seed": -1}, "seed"),
            ({"rtol": -1.0}, "rtol"),
            ({"rtol": float("nan")}, "rtol"),
            ({"max_exact_entries": 0}, "max_exact_entries"),
        ],
    )
    def test_bad_settings_are_named(self, options, message):
        with pytest.raises(ParameterError, match=message):
            wasserstein_distance([1.0], [2.0], **options)

    def test_defaults(self):
        assert wasserstein_distance.__kwdefaults__ == {
            "method": "auto",
            "seed": 0,
            "subsample": 1000,
            "directions": 200,
            "max_exact_entries": 10_000_000,
            "rtol": 1e-3,
        }
        assert distances_to.__kwdefaults__ == {"method": "auto", "seed": 0, "jobs": None, "limit": np.inf}
        assert pooled_diameter.__kwdefaults__ == {"max_rows": 20_000}
        assert sampling_floor.__kwdefaults__ == {"seed": 0}

    def test_least_settings_are_accepted(self):
        least = {"seed": 0, "subsample": 1, "directions": 2, "max_exact_entries": 1, "rtol": 0.0}
        for method in ("auto", "sliced"):
            assert wasserstein_distance([[0.0, 1.0]], [[3.0, 5.0]], method=method, **least).upper > 0

    def test_masked_arrays_without_masked_entries_are_arrays(self):
        assert wasserstein_distance(np.ma.array([1.0, 2.0]), [2.0, 3.0]).value == 1.0

    def test_exact_beyond_its_limit_says_what_to_do(self, rng):
        A = rng.standard_normal((15_000, 2))
        with pytest.raises(ParameterError, match="use 'bracket', or raise max_exact_entries"):
            wasserstein_distance(A, A, method="exact")

    def test_outliers_beyond_rounding_are_not_called_exact(self, rng):
        """A point 1e13 times farther than the clusters are wide: floating point cannot tell the optimum."""
        A, B = (np.vstack([1e-7 * rng.standard_normal((300, 2)), [[1e6, 0.0]]]) for _ in range(2))
        found = wasserstein_distance(A, B, method="exact")
        assert found.method == "bracket"
        assert found.lower <= found.value <= found.upper

    def test_exact_by_name_ignores_the_limit_of_auto(self, rng):
        A = rng.standard_normal((100, 2))
        assert wasserstein_distance(A, A + 1, method="exact", max_exact_entries=9999).method == "exact"

    def test_where_exact_is_refused(self):
        A, B = np.zeros((20_000, 2)), np.ones((10_001, 2))
        with pytest.raises(ParameterError, match=r"needs about 9.0 GB.*to at least 200020000"):
            wasserstein_distance(A, B, method="exact")


class TestDistancesTo:
    def test_same_as_one_by_one_whatever_the_jobs(self, rng):
        focal = rng.standard_normal((120, 4))
        others = [rng.standard_normal((50 + 30 * k, 4)) + k for k in range(6)]
        for method in ("exact", "bracket", "sliced"):
            expected = [wasserstein_distance(focal, other, method=method, seed=2) for other in others]
            for jobs in (1, 4, None):
                assert distances_to(focal, others, method=method, seed=2, jobs=jobs) == expected

    def test_nothing_to_measure(self):
        assert distances_to([1.0, 2.0], []) == []

    def test_checks_everything_first(self):
        with pytest.raises(DataError, match=r"others\[1\] has 2 columns, focal has 1"):
            distances_to([1.0], [[2.0], [[1.0, 2.0]]])
        with pytest.raises(ParameterError, match="needs one column"):
            distances_to([[1.0, 2.0]], [[[1.0, 2.0]]], method="line")
        with pytest.raises(ParameterError, match="jobs"):
            distances_to([1.0], [[2.0]], jobs=0)
        with pytest.raises(ParameterError, match="limit"):
            distances_to([1.0], [[2.0]], limit=-1.0)
        with pytest.raises(DataError, match="put a single array in a list"):
            distances_to([1.0], np.ones((3, 1)))

    def test_threads_leave_no_trace(self, rng):
        before = threading.active_count()
        distances_to(rng.standard_normal((20, 2)), [rng.standard_normal((20, 2))] * 3, jobs=3)
        assert threading.active_count() == before


class TestSamplingFloor:
    def test_is_the_distance_between_halves(self):
        X = np.array([[0.0], [0.0], [4.0]])
        found = sampling_floor(X)
        assert found.rows == (1, 2)
        assert found.value in (2.0, 4.0)
        assert sampling_floor([0.0, 4.0]).value == 4.0
        assert sampling_floor(np.arange(8.0)).rows == (4, 4)

    def test_swamps_a_shift_in_high_dimension_and_not_on_the_line(self, rng):
        high, line = rng.standard_normal((600, 100)), rng.standard_normal(600)
        shift = 0.9
        moved = high + shift / np.sqrt(100)  # every row moves by 0.9
        floor = sampling_floor(high).value
        fresh = rng.standard_normal((600, 100))
        assert wasserstein_distance(high, moved).value == pytest.approx(shift, rel=1e-9)  # the same rows, moved
        unmoved, apart = (wasserstein_distance(fresh, Z).value for Z in (high, moved))
        assert abs(apart - unmoved) < 0.05 * floor  # other rows: the shift is hidden
        # One split scatters by half its size (3 % of splits exceed 0.18), so the mean over splits is compared.
        assert np.mean([sampling_floor(line, seed=seed).value for seed in range(50)]) < 0.2 * shift

    def test_shrinks_slowly_with_rows_in_high_dimension(self, rng):
        X = rng.standard_normal((1600, 50))
        small, large = sampling_floor(X[:200]).value, sampling_floor(X).value
        assert 0.8 * small < large < small

    def test_seed_and_bad_input(self, rng):
        X = rng.standard_normal((30, 3))
        assert sampling_floor(X, seed=1) == sampling_floor(X, seed=1) != sampling_floor(X, seed=2)
        with pytest.raises(DataError, match="at least 2 rows"):
            sampling_floor([[1.0, 2.0]])
        with pytest.raises(DataError, match="X has 1 entries"):
            sampling_floor([1.0, np.nan])
