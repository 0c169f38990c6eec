"""The classifier with nothing to set: the self-tuning regressor on signed one-hot targets, then calibration."""

from __future__ import annotations

from mixtune.estimators._base import LinearTransferRegressor
from mixtune.estimators._classifier import LinearTransferClassifier
from mixtune.estimators._cv import RegretOptimalRegressorCV, TunedSettings
from mixtune.estimators._saving import savable

__all__ = ["RegretOptimalClassifierCV"]


@savable
class RegretOptimalClassifierCV(TunedSettings, LinearTransferClassifier):
    """Classification with nothing to set, by :class:`RegretOptimalRegressorCV` on signed one-hot targets.

    Attributes
    ----------
    classes_ : array (K,)
        All classes of focal rows and sources, sorted.
    regressor_ : RegretOptimalRegressorCV
        The fitted scores, with weights, candidates and comparisons.
    sharpness_ : float
        Probabilities are ``softmax(sharpness_ * scores)``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["no", "no", "yes", "yes"])
    >>> model = RegretOptimalClassifierCV().fit(X, y, sources={"b": (X + 0.1, y)})
    >>> model.predict([[-1.0], [4.0]])
    array(['no', 'yes'], dtype='<U3')
    """

    def _make_regressor(self) -> LinearTransferRegressor:
        return RegretOptimalRegressorCV(**self.get_params(deep=False))
