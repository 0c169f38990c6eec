import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mixtune import Moments
from mixtune.errors import DataError, ParameterError
from mixtune.regret import joint_head, joint_subset_head, local_head, mean_local_head
from problems import make_rows


@pytest.fixture(params=[None, 2])
def rows(request):
    rng = np.random.default_rng(0)
    return [make_rows(rng, n, 5, request.param) for n in (4, 9, 12)]


def ridge(pairs):
    U, Y = np.vstack([u for u, _ in pairs]), np.concatenate([y for _, y in pairs])
    return Ridge(alpha=2.0, fit_intercept=False, solver="svd").fit(U, Y).coef_.T


def test_against_scikit_learn(rows):
    moments = [Moments.from_rows(U, Y) for U, Y in rows]
    for i in range(3):
        np.testing.assert_allclose(local_head(moments, i, ridge=2.0), ridge([rows[i]]))
    np.testing.assert_allclose(joint_head(moments, ridge=2.0), ridge(rows))
    np.testing.assert_allclose(joint_subset_head(moments, [0, 2], ridge=2.0), ridge([rows[0], rows[2]]))
    np.testing.assert_allclose(mean_local_head(moments, ridge=2.0), np.mean([ridge([r]) for r in rows], axis=0))


def test_means_need_like_datasets():
    unlike = [Moments.from_rows(np.ones((3, p)), np.ones(3)) for p in (2, 3)]
    with pytest.raises(DataError, match="same feature map"):
        mean_local_head(unlike, ridge=1.0)
    with pytest.raises(ParameterError, match="no datasets"):
        mean_local_head([], ridge=1.0)


@pytest.mark.parametrize("subset", [[], [0, 0], [3], [-1]])
def test_refused_subsets(rows, subset):
    moments = [Moments.from_rows(U, Y) for U, Y in rows]
    with pytest.raises(ParameterError):
        joint_subset_head(moments, subset, ridge=1.0)
