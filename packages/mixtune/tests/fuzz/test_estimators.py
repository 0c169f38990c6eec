"""Whatever is passed to the public estimators: a clear error, or finite predictions."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extras import extra
from fuzz.problems import CLASSIFIERS, DEFAULTS, REGRESSORS, problems
from mixtune.errors import MixtuneError

pd = extra("pandas")

CONTAINERS = {
    "array": lambda X: X,
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "float32": lambda X: X.astype(np.float32),
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]),
    "arrow": lambda X: pa.table({f"c{i}": X[:, i] for i in range(X.shape[1])}),
    "object": lambda X: X.astype(object),
    "masked": lambda X: np.ma.masked_greater(X, 1.5),
}
#: What may be written over single values.
VALUES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e-308, 1e-200, 1e200, 1e308, 1.7976931348623157e308)
#: Factors for whole columns, or for all targets.
SIZES = (1.0, 0.0, 1e-320, 1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300)


def is_clear(error: BaseException) -> bool:
    """Whether an error says what is wrong: one of ours, or what scikit-learn says of input it refuses."""
    return isinstance(error, MixtuneError) or (type(error) in (ValueError, TypeError) and len(str(error)) > 10)


def checked_fit(problem, make, container="array"):
    """Fit and predict; the numbers, or None where a clear error came."""
    wrap = CONTAINERS[container]
    sources = {name: (wrap(given[0]), *given[1:]) for name, given in problem.sources.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        try:
            model = make().fit(wrap(problem.X[0]), problem.y[0], problem.weight[0], sources=sources or None)
            new = wrap(problem.new)
            return model.predict_proba(new) if hasattr(model, "predict_proba") else model.predict(new)
        except (MixtuneError, ValueError, TypeError) as raised:
            error = raised
    assert is_clear(error), repr(error)
    return None


@pytest.mark.parametrize("estimator", [*REGRESSORS, *CLASSIFIERS, *DEFAULTS])
@given(problem=problems, container=st.sampled_from(list(CONTAINERS)))
def test_any_container(estimator, problem, container):
    make = {**REGRESSORS, **CLASSIFIERS, **DEFAULTS}[estimator]
    problem = problem.labels() if estimator in CLASSIFIERS else problem
    found = checked_fit(problem, make, container)
    if found is None:
        # Arrays of Python objects are refused as sources, masked values everywhere.
        assert container in ("masked", "object") or estimator in CLASSIFIERS
        return
    assert np.all(np.isfinite(found))
    if container not in ("float32", "masked"):
        np.testing.assert_allclose(found, checked_fit(problem, make), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("estimator", [*REGRESSORS, *CLASSIFIERS, *DEFAULTS])
@given(problem=problems, seed=st.integers(0, 2**32 - 1), size=st.sampled_from(SIZES), target=st.sampled_from(SIZES))
def test_any_magnitude(estimator, problem, seed, size, target):
    """Columns and targets in absurd units."""
    column = np.random.default_rng(seed).integers(problem.new.shape[1])
    factor = np.ones(problem.new.shape[1])
    factor[column] = size
    with np.errstate(all="ignore"):
        problem = problem.map(X=lambda X: X * factor, y=lambda y: y * target)
    problem = problem.labels() if estimator in CLASSIFIERS else problem
    found = checked_fit(problem, {**REGRESSORS, **CLASSIFIERS, **DEFAULTS}[estimator])
    assert found is None or np.all(np.isfinite(found))


@pytest.mark.parametrize("estimator", [*REGRESSORS, *CLASSIFIERS, *DEFAULTS])
@given(problem=problems, seed=st.integers(0, 2**32 - 1), value=st.sampled_from(VALUES), where=st.sampled_from("Xyws"))
def test_any_value(estimator, problem, seed, value, where):
    """One number somewhere replaced by an extreme or impossible one."""
    rng = np.random.default_rng(seed)
    domain = rng.integers(len(problem.X))
    parts = [list(map(np.copy, problem.X)), list(map(np.copy, problem.y))]
    weight = [np.ones(len(y)) if w is None else w.copy() for y, w in zip(problem.y, problem.weight)]
    row = rng.integers(len(problem.y[domain]))
    if where == "X":
        parts[0][domain][row, rng.integers(problem.new.shape[1])] = value
    elif where == "y":
        parts[1][domain][row] = value
    elif where == "w":
        weight[domain][row] = value
    else:
        parts[0][domain][:, rng.integers(problem.new.shape[1])] = value
    changed = type(problem)(tuple(parts[0]), tuple(parts[1]), tuple(weight), problem.new)
    if estimator in CLASSIFIERS:
        if where == "y":
            return
        changed = changed.labels()
    found = checked_fit(changed, {**REGRESSORS, **CLASSIFIERS, **DEFAULTS}[estimator])
    if not np.isfinite(value) and where != "w":
        assert found is None
    assert found is None or np.all(np.isfinite(found))
