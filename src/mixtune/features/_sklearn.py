"""Any fitted scikit-learn transformer as a frozen feature map."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from mixtune.errors import DataError, ParameterError
from mixtune.features._protocol import Array, as_rows, back_to, check_finite

__all__ = ["SklearnFeatures"]


@dataclass(frozen=True, eq=False)
class SklearnFeatures:
    """The output of a fitted scikit-learn transformer or pipeline, made dense.

    Parameters
    ----------
    transformer
        Fitted; it is copied, so fitting it again later does not change the features.

    Attributes
    ----------
    n_inputs : int or None
        Number of columns of ``X``, where the transformer knows it.
    n_features_out : int
        Number of features.

    Raises
    ------
    ParameterError
        If the transformer is not fitted or does not tell the number of its features.

    Examples
    --------
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> features = SklearnFeatures(PolynomialFeatures(2).fit([[0.0, 0.0]]))
    >>> features.n_features_out
    6
    >>> features.transform([[2.0, 3.0]])
    array([[1., 2., 3., 4., 6., 9.]])
    """

    transformer: Any
    n_inputs: int | None = field(init=False)
    n_features_out: int = field(init=False)

    def __post_init__(self) -> None:
        name = type(self.transformer).__name__
        if isinstance(self.transformer, type) or not hasattr(self.transformer, "transform"):
            raise ParameterError(f"{self.transformer!r} has no transform; pass a fitted scikit-learn transformer")
        try:
            check_is_fitted(self.transformer)
        except (NotFittedError, TypeError) as error:
            raise ParameterError(f"{name} is not fitted; call its fit before wrapping it") from error
        object.__setattr__(self, "transformer", copy.deepcopy(self.transformer))
        n_inputs = getattr(self.transformer, "n_features_in_", None)
        object.__setattr__(self, "n_inputs", None if n_inputs is None else int(n_inputs))
        object.__setattr__(self, "n_features_out", self._count_features(name))

    def _count_features(self, name: str) -> int:
        """Ask the transformer for the number of its features, or else try it on one row of ones."""
        try:
            return len(self.transformer.get_feature_names_out())
        except (AttributeError, ValueError, NotFittedError) as error:
            if self.n_inputs is None:
                raise ParameterError(
                    f"{name} does not tell its number of columns; fit it on some rows first"
                ) from error
        with np.errstate(all="ignore"):
            return int(self._dense(np.ones((1, self.n_inputs))).shape[1])

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the rows of ``X``.

        Parameters
        ----------
        X
            Array, tensor, or (for transformers that choose columns by name) a data frame.

        Returns
        -------
        array of shape (n, n_features_out)
            Dense; a tensor on the device of ``X`` if ``X`` is one, else a NumPy array.
        """
        if hasattr(X, "columns"):
            features = self._dense(X)
        else:
            rows = as_rows(X, self.n_inputs)
            features = self._dense(np.asarray(rows.cpu()) if is_torch_array(rows) else rows)
        if features.ndim != 2 or features.shape[1] != self.n_features_out:
            raise DataError(
                f"the transformer gave features of shape {features.shape}, not {self.n_features_out} columns; "
                "wrap one whose output has a fixed width"
            )
        check_finite(features, "the features")
        return back_to(X, features)

    def _dense(self, X: Any) -> Any:
        with warnings.catch_warnings():
            # Columns are compared by number here and by name where domains are made.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            try:
                features = self.transformer.transform(X)
            except (TypeError, ValueError) as error:
                raise DataError(f"{type(self.transformer).__name__} cannot transform X: {error}") from error
        features = np.asarray(features.toarray() if hasattr(features, "toarray") else features)
        return features if features.dtype == np.float32 else features.astype(np.float64)
