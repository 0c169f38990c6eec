"""Any fitted scikit-learn transformer as a frozen feature map."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mixtune.data import arrange_columns
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
    input_names : tuple of str or None
        Names of the columns of ``X``, where the transformer was fitted on a data frame.
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
    input_names: tuple[str, ...] | None = field(init=False)
    n_features_out: int = field(init=False)

    def __post_init__(self) -> None:
        # Imported here, because scikit-learn takes longer to import than all the rest together.
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

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
        names = getattr(self.transformer, "feature_names_in_", None)
        object.__setattr__(self, "input_names", None if names is None else tuple(map(str, names)))
        object.__setattr__(self, "n_features_out", self._count_features(name))

    def _count_features(self, name: str) -> int:
        """Ask the transformer for the number of its features, or else try it on one row of ones."""
        try:
            return len(self.transformer.get_feature_names_out())
        except (AttributeError, ValueError) as error:  # what NotFittedError derives from
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
            Array, tensor, or (for transformers that choose columns by name) a data frame. The columns of an array
            or a tensor are taken to be in the order in which the transformer was fitted.

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
        return back_to(X, self._check(features))

    def transform_named(self, X: Array, columns: Sequence[str], /) -> Array:
        """Compute the features of rows whose columns have names, in whatever order.

        Parameters
        ----------
        X
            Array or tensor.
        columns
            The names of its columns. The transformer gets those it was fitted on, in its order, as a pandas frame
            if pandas is installed; a transformer fitted without names gets them all as they come.

        Raises
        ------
        DataError
            If columns that the transformer was fitted on are missing.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn.preprocessing import MaxAbsScaler
        >>> features = SklearnFeatures(MaxAbsScaler().fit(pd.DataFrame({"u": [1.0], "v": [10.0]})))
        >>> features.transform_named(np.array([[10.0, 1.0]]), ["v", "u"])
        array([[1., 1.]])
        """
        if self.input_names is None:
            return self.transform(X)
        rows = arrange_columns(as_rows(X, None), columns, self.input_names, type(self.transformer).__name__)
        return back_to(X, self._check(self._dense(rows)))

    def _check(self, features: Any) -> Any:
        if features.ndim != 2 or features.shape[1] != self.n_features_out:
            raise DataError(
                f"the transformer gave features of shape {features.shape}, not {self.n_features_out} columns; "
                "wrap one whose output has a fixed width"
            )
        check_finite(features, "the features")
        return features

    def _dense(self, X: Any) -> Any:
        with warnings.catch_warnings():
            # Columns of arrays are compared by number here, and by name in transform_named.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            try:
                features = self.transformer.transform(X)
            except (TypeError, ValueError) as error:
                named = self.input_names is not None and not hasattr(X, "columns")
                advice = "; if it chooses columns by name, pass a data frame or install pandas" if named else ""
                raise DataError(f"{type(self.transformer).__name__} cannot transform X: {error}{advice}") from error
        features = np.asarray(features.toarray() if hasattr(features, "toarray") else features)
        return features if features.dtype == np.float32 else features.astype(np.float64)
