"""What a fitted model shows of itself: a page, pictures, a table of its domains, and how a notebook shows it.

The views are made in :mod:`mixtune.report.displays`. That module is looked up by its name when a view is
asked for, so that no estimator depends on it.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from sklearn import get_config
from sklearn.utils.validation import check_is_fitted

from mixtune.errors import DataError
from mixtune.estimators._inputs import FocalSplit, Sources, text_encoded


class Shown:
    """Gives an estimator, or a model of tables, its views."""

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, sources: Any = None) -> Path:
        """Write one HTML page about the fit.

        Parameters
        ----------
        path
            Where to, such as ``"report.html"``.
        X, y, sources
            What the model was fitted to. A model from a file holds no rows: an estimator needs them, and the page of a
            :class:`mixtune.TableModel` is shorter without them.

        Returns
        -------
        Path
            Of the file.
        """
        return Path(_displays().write_model_report(self, path, X=X, y=y, sources=sources))

    def plot_weights(self, *, ax: Any = None, most: int = 20) -> Any:
        """Draw how much each domain counts; the ``most`` heaviest are shown.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        most : int
            Largest number of bars.

        Returns
        -------
        mixtune.report.displays.WeightsDisplay
            With ``ax_`` and ``figure_``.
        """
        return _displays().WeightsDisplay.from_estimator(self, ax=ax, most=most)

    def plot_effects(self, *, ax: Any = None, most: int = 15) -> Any:
        """Draw how the prediction changes with each column, with 95% intervals; the ``most`` largest are shown.

        Parameters
        ----------
        ax, most
            As for :meth:`plot_weights`.

        Returns
        -------
        mixtune.report.displays.EffectsDisplay
            With ``ax_`` and ``figure_``.
        """
        return _displays().EffectsDisplay.from_estimator(self, ax=ax, most=most)

    def plot_path(self, *, ax: Any = None) -> Any:
        """Draw the left-out error along effective ridges, with the one of the largest share.

        Parameters
        ----------
        ax
            As for :meth:`plot_weights`.

        Returns
        -------
        mixtune.report.displays.PathDisplay
            With ``ax_`` and ``figure_``.
        """
        return _displays().PathDisplay.from_estimator(self, ax=ax)

    def summary(self, of: str = "domains") -> Any:
        """The domains or the columns of the fit, as a pandas frame.

        Parameters
        ----------
        of : {"domains", "columns"}
            One row for each domain, with rows, weight, error of its own model, and the change of the error without it;
            or one row for each column, with its effect on the prediction (:func:`mixtune.column_effects`).

        Returns
        -------
        pandas.DataFrame
            The focal domain first, then the sources by weight; or columns by the size of their effects.
        """
        return _displays().summary_frame(self, of)

    def _verdict(self) -> str:
        """Whether transfer helped, in one sentence."""
        return str(_displays().verdict_of(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """What a notebook shows: the verdict and the weights once fitted, before that scikit-learn's diagram."""
        if not _is_fitted(self):
            return super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        shown = {"text/plain": repr(self)}
        return {**shown, "text/html": _displays().model_html(self)} if get_config()["display"] == "diagram" else shown

    def _repr_html_inner(self) -> str:
        """The same for notebooks that ask for HTML only."""
        return _displays().model_html(self) if _is_fitted(self) else super()._repr_html_inner()  # type: ignore[misc]


def rows_of_fit(model: Any) -> FocalSplit:
    """The focal rows and sources that an estimator was fitted to, as far as it holds them.

    Raises
    ------
    DataError
        If it holds none, as after loading.

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressorCV
    >>> model = RegretOptimalRegressorCV(None).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> rows_of_fit(model).y
    array([1., 2., 4.])
    """
    inner = getattr(model, "regressor_", model)
    check_is_fitted(inner, "coef_")
    kept = getattr(inner, "_inputs", None)
    if kept is None or text_encoded(inner):
        raise DataError(f"this {type(model).__name__} holds no rows of its fit; pass the X, y and sources of the fit")
    focal, *others = kept.items()
    X, names = focal[1].X, getattr(inner, "feature_names_in_", None)
    inputs = X if names is None else pa.table(dict(zip(names, X.T)))
    y = model.classes_[model._places] if model is not inner else focal[1].y
    return FocalSplit(inputs, y, Sources({name: (rows.X, rows.y) for name, rows in others}))


def _is_fitted(model: Any) -> bool:
    estimator = getattr(model, "estimator", model)
    return hasattr(getattr(estimator, "regressor_", estimator), "coef_")


def _displays() -> Any:
    return import_module("mixtune.report.displays")
