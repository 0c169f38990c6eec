"""Classes in every domain, from one fit: scores by :class:`MultiDomainRegressor`, then a calibration of each domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from mixtune._registry import check_array
from mixtune.arrays import Array, Floats, Integers, one_thread_if_small
from mixtune.data import frame_of
from mixtune.errors import DataError
from mixtune.estimators._base import all_scores, column_names
from mixtune.estimators._classifier import (
    ClassSigns,
    check_known,
    check_repeated,
    found_classes,
    sharpness_of,
    signs_of,
    stream_labels,
)
from mixtune.estimators._fits import KeptRows
from mixtune.estimators._inputs import check_scored
from mixtune.estimators._multi_domain import MultiDomainEstimator, MultiDomainRegressor, learn_every, summary_of
from mixtune.estimators._saving import savable
from mixtune.moments import Rows
from mixtune.streaming import StreamedSources

ClassCounts = dict[str, Counter[float]]
#: Rows that the left-out rows of all domains count as, beside a domain's own, when its probabilities are calibrated.
#: Without it, ten rows that happen to be classified correctly make probabilities of nearly one.
SHARED_ROWS = 100.0


@savable
class MultiDomainClassifier(ClassifierMixin, MultiDomainEstimator):  # type: ignore[misc]
    """Classification in every domain, from one fit: :class:`MultiDomainRegressor` on targets +1 and -1.

    Parameters are those of :class:`MultiDomainRegressor`. Probabilities are calibrated for each domain, on its own rows
    left out and, as far as they are few, on those of all domains. Rows of a domain that was not seen get the scores of
    the population of domains, calibrated on domains that were left out in turn.

    Attributes
    ----------
    classes_ : array (K,)
        All classes of all domains, sorted. A class may be missing in some domains.
    domains_ : tuple of str
        The names of the domains, sorted.
    n_rows_ : array (N,)
    class_counts_ : array (N, K)
        How many rows of each class every domain has.
    coef_, intercept_ : arrays (N, p) and (N,) for two classes, else (N, p, K) and (N, K)
        Of the scores.
    sharpness_ : array (N + 1,)
        Probabilities are ``softmax(sharpness * scores)``; the last is that of domains that were not seen.
    weights_ : array (N, N)
        In each row: the share of the prediction for one domain that every domain provides.
    regressors_ : tuple of MultiDomainRegressor
        The fitted scores: of the second class where there are two, else of every class.
    notes_ : tuple of str
        Columns that almost determine the class and rows that stand more than once, which come first; and fallbacks
        that were used.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, shop = rng.standard_normal((160, 1)), np.repeat(["a", "b", "c", "d"], 40)
    >>> y = np.where(X[:, 0] * np.where(shop == "d", -1, 1) > 0, "yes", "no")
    >>> model = MultiDomainClassifier(feature_map=None).fit(X, y, domain=shop)
    >>> model.predict([[1.0], [1.0]], domain=["a", "d"])
    array(['yes', 'no'], dtype='<U3')
    """

    __metadata_request__decision_function = {"domain": True}  # noqa: RUF012
    __metadata_request__predict_proba = {"domain": True}  # noqa: RUF012
    __metadata_request__predict_log_proba = {"domain": True}  # noqa: RUF012

    _stored_attributes: ClassVar[tuple[str, ...]] = (
        *("classes_", "class_counts_", "regressors_", "sharpness_", "right_", "n_features_in_", "feature_names_in_"),
        "text_encoded_",
    )

    classes_: Array
    class_counts_: Integers
    regressors_: tuple[MultiDomainRegressor, ...]
    sharpness_: Floats
    #: How many rows of each class every domain has; not stored in files.
    _class_rows: dict[str, Integers]
    #: The part of each domain's rows that is classified correctly when left out.
    right_: Floats

    @property
    def _known(self) -> MultiDomainRegressor:
        return self.regressors_[0]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, domain: Any = None) -> Self:
        """Fit a model for every domain.

        Parameters
        ----------
        X, y : array-like or data frame (n, d), and labels (n,)
            Rows of all domains with their classes. Or X alone: :class:`StreamedSources`, as for
            :class:`MultiDomainRegressor`.
        sample_weight : array-like (n,), optional
            Weight 0 means absent.
        domain : array-like (n,), optional
            The domain of each row, a text or number; not where the parameter ``domain`` names a column of ``X``.
        """
        return self._fit(X, y, sample_weight, domain, None)

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, *, domain: Any = None
    ) -> Self:
        """Add rows of known or new domains, and fit again; the result is that of ``fit`` with all rows.

        On an unfitted estimator this is ``fit``; ``classes`` then lists all classes that will ever come, if these rows
        do not have them all. A model loaded from a file holds no rows and cannot be updated.
        """
        if not hasattr(self, "regressors_"):
            return self._fit(X, y, sample_weight, domain, classes)
        check_repeated(classes, self.classes_)
        self._check_parameters()
        counts = class_counts(X)
        rows, stream = self._incoming(X, y, sample_weight, domain, reset=False)
        check_known(self.classes_, stream_labels(counts) or [part.y for part in rows.values()])
        kept = self._with_rows(self._signed(rows), self._coded(stream))
        self._class_rows = self._counted(rows, counts, before=self._class_rows)
        self._learn(kept)
        return self

    def decision_function(self, X: Any, *, domain: Any = None) -> Floats:
        """Scores: of the second class (n,) where there are two, else of every class (n, K); larger is likelier."""
        scores = self._scores(X, domain)[0]
        return scores[:, 1] if len(self.classes_) == 2 else scores

    def predict(self, X: Any, *, domain: Any = None) -> Array:
        """The likeliest class of each row.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        domain : array-like (n,), optional
            The domain of each row, as for ``fit``.
        """
        scores, _ = self._scores(X, domain)
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: Any, *, domain: Any = None) -> Floats:
        """Probabilities (n, K) of the classes."""
        return np.exp(self.predict_log_proba(X, domain=domain))

    def predict_log_proba(self, X: Any, *, domain: Any = None) -> Floats:
        """Logarithms (n, K) of the probabilities; the log-odds of two classes are the difference of their columns."""
        scores, places = self._scores(X, domain)
        return np.asarray(log_softmax(self.sharpness_[places][:, None] * scores, axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, domain: Any = None) -> float:
        """The part of all rows that is classified correctly."""
        check_scored(y, sample_weight)
        return float(accuracy_score(y, self.predict(X, domain=domain), sample_weight=sample_weight))

    def summary_columns(self) -> dict[str, Any]:
        """Columns with a value for each domain, as :meth:`MultiDomainRegressor.summary_columns` has them.

        Errors are those of the scores, which should be +1 for the class and -1 for any other. ``right`` is the part of
        the rows that is classified correctly when left out, ``classes`` the number of classes among them.
        """
        check_is_fitted(self)
        columns = summary_of(self.regressors_)
        return {**columns, "right": self.right_, "classes": np.sum(self.class_counts_ > 0, axis=1)}

    def coefficients(self) -> Any:
        """Coefficients of the scores, as :meth:`MultiDomainRegressor.coefficients`; of 3 or more classes, by label."""
        check_is_fitted(self)
        if len(self.regressors_) == 1:
            return self._known.coefficients()
        parts = [each.coefficient_columns() for each in self.regressors_]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return frame_of({"label": np.repeat(self.classes_, len(parts[0]["domain"])), **joined})

    @property
    def domains_(self) -> tuple[str, ...]:
        """The names of the domains, sorted."""
        return self._known.domains_

    @property
    def n_rows_(self) -> Integers:
        """How many rows each domain has."""
        return self._known.n_rows_

    @property
    def notes_(self) -> tuple[str, ...]:
        """Findings of leaks and repeats, and fallbacks that were used."""
        return self._known.notes_

    @property
    def weights_(self) -> Floats:
        """The share of the prediction for each domain (rows) that every domain (columns) provides."""
        return np.mean([each.weights_ for each in self.regressors_], axis=0)

    @property
    def coef_(self) -> Floats:
        """Coefficients of the scores."""
        return self._joined("coef_")

    @property
    def intercept_(self) -> Floats:
        """Intercepts of the scores."""
        return self._joined("intercept_")

    def _joined(self, name: str) -> Floats:
        parts = [getattr(each, name) for each in self.regressors_]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)

    def _fit(self, X: Any, y: Any, sample_weight: Any, domain: Any, classes: Any) -> Self:
        self._check_parameters()
        counts = class_counts(X)
        rows, stream = self._incoming(X, y, sample_weight, domain, reset=True)
        found = stream_labels(counts) or [part.y for part in rows.values()]
        self.classes_ = found_classes(found, classes, "all domains")
        self._class_rows = self._counted(rows, counts, before={})
        self._learn(KeptRows(self._signed(rows)), self._coded(stream))
        return self

    @property
    def _signs(self) -> ClassSigns:
        return ClassSigns(tuple(self.classes_.tolist()))

    def _signed(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """The rows with targets +1 and -1 in place of labels."""
        return {name: replace(part, y=self._signs(part.y)) for name, part in rows.items()}

    def _coded(self, stream: StreamedSources | None) -> StreamedSources | None:
        return None if stream is None else stream.coded(self._signs)

    def _counted(
        self, rows: Mapping[str, Rows], counts: ClassCounts, *, before: Mapping[str, Integers]
    ) -> dict[str, Integers]:
        """How many rows (K,) of each class every domain has: as ``before``, with those of a stream or else the rows."""
        found = dict(before)
        for name, part in rows.items():
            own = np.bincount(np.searchsorted(self.classes_, part.y), minlength=len(self.classes_))
            if name in counts:
                own = np.array([counts[name][label] for label in self.classes_.tolist()])
            found[name] = found.get(name, 0) + own
        return found

    def _learn(self, kept: KeptRows, stream: StreamedSources | None = None) -> None:
        with one_thread_if_small(part.X for part in kept.rows.values()):
            learned = learn_every(kept, self, column_names(self), stream)
        made = []
        for output in range(len(learned.fits)):
            each = MultiDomainRegressor(**self.get_params(deep=False))
            each.n_features_in_ = self.n_features_in_
            if (names := column_names(self)) is not None:
                each.feature_names_in_ = np.array(names, dtype=object)
            each._take(learned, output)
            made.append(each)
        self.regressors_ = tuple(made)
        self._kept = learned.kept
        rows = list(learned.rows.values())
        self.class_counts_ = np.stack([self._class_rows[name] for name in self.domains_])
        places = [np.argmax(all_scores(part.targets), axis=1) for part in rows]
        self._calibrate([part.weight for part in rows], places)

    def _calibrate(self, weights: list[Floats], places: list[Integers]) -> None:
        """Sharpness of each domain from left-out rows, and of the population from left-out domains."""
        wanted, weight = np.concatenate(places), np.concatenate(weights)
        domain = np.repeat(np.arange(len(places)), [len(each) for each in places])
        signs = signs_of(wanted, len(self.classes_)).reshape(len(wanted), -1)

        def left_out(name: str) -> Floats:
            fits: list[Any] = [each._fits for each in self.regressors_]
            return all_scores(signs - np.column_stack([np.concatenate(getattr(fit, name)) for fit in fits]))

        own, without = left_out("residuals"), left_out("without")
        right = (np.argmax(own, axis=1) == wanted) & np.isfinite(own).all(axis=1)
        self.right_ = np.bincount(domain, weights=right * weight) / np.bincount(domain, weights=weight)
        everywhere = sharpness_of(without, wanted, weight, np.zeros(len(wanted), dtype=np.int64), shared=0.0)
        self.sharpness_ = np.append(sharpness_of(own, wanted, weight, domain, shared=SHARED_ROWS), everywhere)

    def _scores(self, X: Any, domain: Any) -> tuple[Floats, Integers]:
        """Scores (n, K) of all classes, and the places of the rows' domains."""
        rows, places = self._rows(X, domain)
        features = self._features(rows, places)
        found = np.column_stack([each._predictions(features, places) for each in self.regressors_])
        return all_scores(found), places

    def _exported(self) -> tuple[Floats, Floats, dict[str, Any]]:
        parts = [each._exported()[:2] for each in self.regressors_]
        coef, intercept = (np.stack([part[k] for part in parts], axis=-1) for k in (0, 1))
        if len(parts) == 1:
            coef, intercept = (np.concatenate([-part, part], axis=-1) for part in (coef, intercept))
        return coef, intercept, {"classes": self.classes_, "sharpness": self.sharpness_}

    def _check_loaded(self, width: int) -> None:
        count = len(self.classes_)
        for each in self.regressors_:
            each._check_loaded(width)
        if len(self.regressors_) != (1 if count == 2 else count) or len(np.unique(self.classes_)) != count:
            raise DataError("the classes of the file are not those of its scores; save the model again")
        check_array("sharpness_", self.sharpness_, (len(self.domains_) + 1,), least=np.nextafter(0.0, 1.0))
        check_array("class_counts_", self.class_counts_, (len(self.domains_), count), kind="i", least=0)


def class_counts(X: Any) -> ClassCounts:
    """How many rows of each class the domains of a stream have; nothing for rows in memory."""
    return X.class_counts() if isinstance(X, StreamedSources) else {}
