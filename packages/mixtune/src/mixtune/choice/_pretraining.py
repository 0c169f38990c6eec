"""Columns learned from the sources: pre-training in the paper's sense.

Sources may follow the same function with opposite signs. Each source's own model, evaluated on rows of all sources, is
a function; the sign of its loading on the direction that these functions have in common tells which sources change
sign. Two models are then fitted to all sources together, each source about its own mean: a ridge model on random
features, and boosted trees. Both are fitted in folds of sources, so that the columns of a source come from models that
were not fitted to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from mixtune.arrays import EPSILON, Floats, Integers
from mixtune.choice._settings import SETTINGS
from mixtune.features import LearnedColumns, Oriented, RandomFeatures, TreeColumn, Trees
from mixtune.moments import Moments, Regression, Rows, best_ridge, ridge_heads

#: Digits of the inputs, in standard units, that trees are made from.
DIGITS = 9


class Pretrained(NamedTuple):
    """The learned columns, the fold of each source, and the targets that they were learned from.

    The targets of each source have mean 0, spread 1 and the sign that the sources have in common.
    """

    columns: LearnedColumns
    folds: Integers
    targets: list[Floats]


def learn_columns(sources: Sequence[Rows], oriented: Oriented, *, seed: int) -> Pretrained:
    """Columns learned from the sources.

    Parameters
    ----------
    sources : sequence of Rows
        Inputs in the units given, one target, in an order that follows from their content.
    oriented : Oriented
        Standard units, order and signs of the inputs.
    seed : int
        Of the random features.
    """
    inputs = oriented(np.concatenate([rows.X for rows in sources]))
    wide = RandomFeatures(n_inputs=inputs.shape[1], width=SETTINGS.pretraining_width, seed=seed, constant=False)
    ends = np.cumsum([len(rows.y) for rows in sources])[:-1]
    # Each source about its own mean and in units of its own spread, so that all count alike.
    centred = [
        Rows(U - _mean(rows, U), _standard_targets(rows), rows.sample_weight)
        for U, rows in zip(np.split(wide.transform(inputs), ends), sources)
    ]
    # Fewer features tell signs as well.
    signs = common_signs([Rows(rows.X[:, : SETTINGS.sign_width], rows.y, rows.sample_weight) for rows in centred])
    aligned = [Rows(rows.X, sign * rows.y, rows.sample_weight) for sign, rows in zip(signs, centred)]
    folds = np.arange(len(sources)) % SETTINGS.pretraining_folds
    heads = _ridge_heads(aligned, folds)
    targets, weight = (np.concatenate([getattr(rows, name) for rows in aligned]) for name in ("y", "weight"))
    of_row = np.repeat(folds, [len(rows.y) for rows in sources])
    trees = Boosting(Rows(inputs, targets, weight), of_row, seed).enough()
    return Pretrained(LearnedColumns(oriented, wide, heads, trees), folds, [rows.y for rows in aligned])


def joint_error(sources: Sequence[Rows]) -> float:
    """Error of one ridge model for all sources, each about its own means, by generalised cross-validation.

    It is relative to the variance of targets that are in standard units; infinite where rows are too few to tell.
    """
    joint = _regression([Rows(rows.X - _mean(rows, rows.X), rows.y, rows.sample_weight) for rows in sources])
    return _generalised_fit(joint)[0]


class OwnColumn(NamedTuple):
    """Boosted trees of the focal rows, the fold of each row, and their column (n, 1) for these rows, out of fold."""

    column: TreeColumn
    folds: Integers
    values: Floats


def learn_own_column(rows: Rows, others: Floats, oriented: Oriented, *, seed: int) -> OwnColumn | None:
    """Boosted trees fitted to the focal rows in folds, if they tell more about these rows than ``others`` (n, k) do."""
    inputs, y = oriented(rows.X), rows.targets[:, 0]
    centred = Rows(inputs, _standard_targets(Rows(rows.X, y, rows.sample_weight)), rows.sample_weight)
    # Folds follow the content of rows, not the order they came in.
    rank = np.argsort(np.lexsort((rows.weight, np.round(y, 9), *np.round(inputs, 9).T)))
    folds = rank % SETTINGS.pretraining_folds
    boosting, known = Boosting(centred, folds, seed), joint_error([replace(centred, X=others)])

    def column(options: dict[str, float]) -> tuple[OwnColumn, float]:
        trees = TreeColumn(oriented, boosting.fit(options))
        values = trees.out_of_fold(rows.X, folds)
        return OwnColumn(trees, folds, values), joint_error([replace(centred, X=values)]) / known

    found, error = column(SETTINGS.trees)
    many = len(y) >= SETTINGS.many_own_rows
    # Most often a few trees show that more would not do.
    if error < SETTINGS.hopeless_error and (many or boosting.are_too_few(found.column.trees)):
        found, error = min((found, error), column(SETTINGS.more_trees), key=itemgetter(1))
    return found if error < 1.0 else None


@cache
def tree_threads() -> ThreadpoolController:
    """The libraries that give boosted trees their threads.

    They are looked for once: an interrupt during the search would be lost.
    """
    import sklearn.ensemble  # noqa: F401 - they are found only once they are loaded

    return ThreadpoolController().select(user_api="openmp")


@dataclass(frozen=True, eq=False)
class Boosting:
    """Gradient-boosted trees of rows, for each fold without its rows."""

    rows: Rows
    folds: Integers
    seed: int

    @cached_property
    def _parts(self) -> list[tuple[Floats, Floats, Floats | None]]:
        """Inputs, targets and weights of the rows that are not in each fold."""
        # Splits are chosen in single precision, and of equally good ones rounding takes one: numbers that differ by
        # rounding, or the order of rows, must not make other trees.
        X, y, weight = np.round(self.rows.X, DIGITS), np.round(self.rows.y, 7), self.rows.weight
        order = np.lexsort((weight, y, *X.T))
        used = [order[self.folds[order] != fold] for fold in range(int(self.folds.max()) + 1)]
        # With weights, quantiles of columns take most of the time: equal ones are left out.
        return [(X[own], y[own], None if np.ptp(weight[own]) == 0 else weight[own]) for own in used]

    def fit(self, options: dict[str, float]) -> list[Trees]:
        """Trees of fixed size."""
        # Imported here, because it takes a second and is used by this function alone.
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(**options, early_stopping=False, random_state=self.seed)
        # On small tables more threads save no time, and where cores are busy they wait for one another.
        with tree_threads().limit(limits=1):
            fits = (model.fit(X, y, sample_weight=weight) for X, y, weight in self._parts)
            # Thresholds are values of rounded inputs, and inputs that were rounded down lie above them.
            return [Trees.of(fit, margin=0.5 * 10.0**-DIGITS) for fit in fits]

    def are_too_few(self, trees: Sequence[Trees]) -> bool:
        """Whether the second half of the trees of each fold still makes the errors on its rows much smaller."""
        errors, rows = np.zeros(2), self.rows
        for fold, own in enumerate(trees):
            place = np.flatnonzero(self.folds == fold)
            for k, part in enumerate((own.first(len(own.roots) // 2), own)):
                errors[k] += rows.weight[place] @ (rows.y[place] - part(rows.X[place])) ** 2
        return bool(errors[1] < SETTINGS.unfinished_error**2 * errors[0])

    def enough(self) -> list[Trees]:
        """A few trees, or more where these are too few."""
        few = self.fit(SETTINGS.trees)
        return self.fit(SETTINGS.more_trees) if self.are_too_few(few) else few


def common_signs(centred: Sequence[Rows]) -> Floats:
    """1 for sources that keep their sign, -1 for those whose targets change sign."""
    heads = np.stack([_generalised_fit(_regression([rows]))[1] for rows in centred])
    features = np.concatenate([rows.X for rows in centred])
    # Functions on all rows, by their inner products: heads A heads' with A = U'U.
    _, vectors = np.linalg.eigh(heads @ (features.T @ features) @ heads.T)
    loading = vectors[:, -1] * (1.0 if vectors[:, -1].sum() >= 0 else -1.0)
    return np.where(loading >= 0, 1.0, -1.0)


def _generalised_fit(sums: Regression) -> tuple[float, Floats]:
    """The least error by generalised cross-validation, and its coefficients (p,); errors below the least noise tie."""
    return sums.generalised_fit(SETTINGS.focal_ridges * sums.mean_eigenvalue, SETTINGS.smallest_variance)


def _ridge_heads(sources: Sequence[Rows], folds: Integers) -> Floats:
    """Ridge coefficients (folds, p) without the sources of each fold, at the ridge of least error on these."""
    count = int(folds.max()) + 1
    parts = [_regression([sources[i] for i in np.flatnonzero(folds == fold).tolist()]) for fold in range(count)]
    gram, cross = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("gram", "cross"))
    ridges = SETTINGS.focal_ridges * (float(np.trace(gram)) / len(cross) or 1.0)
    heads = [ridge_heads(gram - part.gram, cross - part.cross, ridges) for part in parts]
    errors = sum(part.mean_squares(head) * part.total for part, head in zip(parts, heads))
    best = best_ridge(ridges, np.asarray(errors))
    return np.stack([head[best] for head in heads])


def _regression(sources: Sequence[Rows]) -> Regression:
    """The sums of all rows; there is no intercept."""
    U, y = (np.concatenate([getattr(rows, name) for rows in sources]) for name in ("X", "y"))
    total = float(sum(rows.total for rows in sources))
    if any(rows.sample_weight is not None for rows in sources):
        root = np.sqrt(np.concatenate([rows.weight for rows in sources]))
        U, y = U * root[:, None], y * root
    return Regression(Moments.from_rows(U, y).system, None, total, count=max(total, len(y)))


def _mean(rows: Rows, values: Floats) -> Any:
    return rows.weight @ values / rows.total


def _standard_targets(rows: Rows) -> Floats:
    """Targets of mean 0 and spread 1; zero where they do not vary beyond rounding, so that they have no effect."""
    mean = float(_mean(rows, rows.y))
    spread = float(np.sqrt(_mean(rows, (rows.y - mean) ** 2)))
    return (rows.y - mean) / (spread if spread > 64 * EPSILON * abs(mean) else np.inf)
