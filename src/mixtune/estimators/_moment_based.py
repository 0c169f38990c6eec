"""Estimators that need nothing of the sources but moments: they learn from streams, and later add and forget.

Rows in memory and rows that are only ever streamed lead to the same :class:`~mixtune.estimators._fixed_fit.State`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mixtune._device import torch_device
from mixtune.errors import ParameterError
from mixtune.estimators._base import Learnt, LinearTransferRegressor, check_source, column_names
from mixtune.estimators._fixed_fit import Solved, State
from mixtune.estimators._gathering import Features, check_names, gather_state, has_sums, moments_of, sampled_rows
from mixtune.estimators._preparation import Prepared, check_map, features_of, trim
from mixtune.estimators._sources import Sources, as_sources
from mixtune.estimators._weighing import domains_of
from mixtune.moments import Origin, Rows, augmented, moved

__all__ = ["MomentRegressor", "UpdatableRegressor"]


class MomentRegressor(LinearTransferRegressor):
    """Base of the regressors at fixed parameters; a subclass says how moments become coefficients."""

    @abstractmethod
    def _solve_state(self, state: State, rows: Any) -> Solved:
        """Coefficients and further attributes; ``rows`` are domains and a feature map where rows are compared."""

    def _compares_rows(self) -> bool:
        """Whether moments alone do not do."""
        return False

    def _solve(self, prepared: Prepared) -> Solved:
        compared = self._compares_rows() and len(prepared.names) > 1
        return self._solve_state(
            State.of(prepared), domains_of(prepared, standardise=self.standardise) if compared else None
        )

    def _learn(self, focal: Rows, sources: Sources | None) -> Learnt:
        # On a device sums are gathered block by block, as those of streams are: all features at once may not fit there.
        if not has_sums(sources) and torch_device(self.device) is None:
            return super()._learn(focal, sources)
        features, focal = self._features_made(), trim(focal)
        state, scaling = gather_state(
            focal,
            sources,
            features,
            focal_name=self.focal_name,
            standardise=self.standardise,
            fit_intercept=self.fit_intercept,
        )
        rows = None
        if self._compares_rows():
            prepared = sampled_rows(state, scaling, focal, sources, features)
            rows = domains_of(prepared, standardise=self.standardise)
        return Learnt(state.names, scaling, self._solve_state(state, rows))

    def _features_made(self) -> Features:
        return Features(self.feature_map, column_names(self), self.device)


class UpdatableRegressor(MomentRegressor):
    """A regressor that keeps its state, so that moments can be added to it and taken away.

    Its ``_solve_state`` gives the state among the attributes to store, as ``_state``.
    """

    weights: Any
    _state: State

    def partial_fit(self, X: Any = None, y: Any = None, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Add focal rows, rows of known sources, or new sources, and solve again; nothing old is read again.

        The standardisation of the first fit is kept, so the result can differ a little from a fit to all rows at once.
        Called first, this is ``fit``.

        Parameters
        ----------
        X, y, sample_weight
            Further focal rows, or None.
        sources
            As for ``fit``; rows of a known name are added to that source.
        """
        if not hasattr(self, "coef_"):
            return self.fit(X, y, sample_weight, sources=sources)
        check_map(self.feature_map)
        self._check_parameters()
        if self._compares_rows():
            raise ParameterError(
                f"weights={self.weights!r} compares rows, which a fitted model no longer holds; call fit with all "
                "rows, or use weights='predictive' or 'equal'"
            )
        if (X is None) != (y is None):
            raise ParameterError("pass X and y together, or neither to add sources only")
        state = self._state
        moments = dict(zip(state.names, state.moments))
        focal = state.focal
        if X is not None:
            added = self._prepared_rows(trim(self._read_focal(X, y, sample_weight, reset=False)), focal)
            focal = focal.joined(added)
            moments[state.names[0]] = moments[state.names[0]] + augmented(added)
        like = Rows(np.zeros((1, self.n_features_in_)), state.focal.y[:1])
        scaling = self._scaling
        origin = Origin(scaling.shift, scaling.target_shift)
        new = moments_of(as_sources(sources), like, origin, self._features_made())
        check_names(list(new), state.names[0])
        for name, part in new.items():
            part = moved(part, np.zeros_like(scaling.shift), scaling.scale, np.zeros_like(scaling.target_shift))
            moments[name] = moments[name] + part if name in moments else part
        self._resolve(
            dataclasses.replace(
                state,
                names=tuple(moments),
                moments=tuple(moments.values()),
                focal=focal,
                gone=state.gone - set(moments),
            )
        )
        return self

    def forget(self, name: str) -> Self:
        """Remove a source exactly: its moments are dropped and the problem is solved again without it.

        The standardisation, which was computed with its rows, is kept; fit again where that must go as well.
        """
        check_is_fitted(self, "coef_")
        state = self._state
        check_source(name, state.names)
        if self._compares_rows():
            raise ParameterError(
                f"weights={self.weights!r} compares rows, which a fitted model no longer holds; fit without that source"
            )
        kept = [i for i, other in enumerate(state.names) if other != name]
        self._resolve(
            dataclasses.replace(
                state,
                names=tuple(state.names[i] for i in kept),
                moments=tuple(state.moments[i] for i in kept),
                gone=state.gone | {name},
            )
        )
        return self

    def _resolve(self, state: State) -> None:
        self._store(self._solve_state(state, None), state.names)

    def _prepared_rows(self, rows: Rows, like: Rows) -> Rows:
        features = features_of(self.feature_map, rows.X, column_names(self), self.device)
        y = rows.y.reshape(len(rows.X), -1)
        if y.shape[1] != like.targets.shape[1]:
            raise ParameterError(
                f"y has {y.shape[1]} outputs, the fit had {like.targets.shape[1]}; pass the same outputs"
            )
        y = y.reshape(len(y), *like.y.shape[1:])
        return self._scaling.apply(Rows(features, y, rows.sample_weight))
