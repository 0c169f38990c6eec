"""Columns learned from the sources: pre-training in the paper's sense.

Sources may follow the same function with opposite signs. Each source's own model, evaluated on rows of all sources, is
a function; the sign of its loading on the direction that these functions have in common tells which sources change
sign. Two models are then fitted to all sources together, each source about its own mean: a ridge model on random
features, and boosted trees. Both are fitted in folds of sources, so that the columns of a source come from models that
were not fitted to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from mixtune._array import Floats, Integers
from mixtune.features import LearnedColumns, Oriented, RandomFeatures, TreeColumn, Trees
from mixtune.moments import Moments, Regression, Rows, best_ridge, ridge_heads
from mixtune.selection._settings import SETTINGS


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
    trees = boosted(Rows(inputs, targets, weight), of_row, seed=seed, options=SETTINGS.trees)
    return Pretrained(LearnedColumns(oriented, wide, heads, trees), folds, [rows.y for rows in aligned])


def joint_error(sources: Sequence[Rows]) -> float:
    """Error of one ridge model for all sources, each about its own means, by generalised cross-validation.

    It is relative to the variance of targets that are in standard units; infinite where rows are too few to tell.
    """
    joint = _regression([Rows(rows.X - _mean(rows, rows.X), rows.y, rows.sample_weight) for rows in sources])
    return _generalised_fit(joint)[0]


def learn_own_column(rows: Rows, oriented: Oriented, *, seed: int) -> tuple[TreeColumn, Integers]:
    """Boosted trees that are fitted to many focal rows in folds, as a column, and the fold of each row."""
    inputs, y = oriented(rows.X), rows.targets[:, 0]
    centred = _standard_targets(Rows(rows.X, y, rows.sample_weight))
    # Folds follow the content of rows, not the order they came in.
    rank = np.argsort(np.lexsort((rows.weight, np.round(y, 9), *np.round(inputs, 9).T)))
    folds = rank % SETTINGS.pretraining_folds
    trees = boosted(Rows(inputs, centred, rows.sample_weight), folds, seed=seed, options=SETTINGS.own_trees)
    return TreeColumn(oriented, trees), folds


@cache
def tree_threads() -> ThreadpoolController:
    """The libraries that give boosted trees their threads.

    They are looked for once: an interrupt during the search would be lost.
    """
    import sklearn.ensemble  # noqa: F401 - they are found only once they are loaded

    return ThreadpoolController().select(user_api="openmp")


def boosted(rows: Rows, folds: Integers, *, seed: int, options: dict[str, float]) -> list[Trees]:
    """Gradient-boosted trees of fixed size, for each fold without its rows."""
    # Imported here, because it takes a second and is used by this function alone.
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(**options, early_stopping=False, random_state=seed)
    # Splits are chosen in single precision, and of equally good ones rounding takes one: numbers that differ by
    # rounding, or the order of rows, must not make other trees.
    X, y, weight = np.round(rows.X, 9), np.round(rows.y, 7), rows.weight
    order = np.lexsort((weight, y, *X.T))
    found = []
    # On small tables more threads save no time, and where cores are busy they wait for one another.
    with tree_threads().limit(limits=1):
        for fold in range(int(folds.max()) + 1):
            used = order[folds[order] != fold]
            # With weights, quantiles of columns take most of the time: equal ones are left out.
            weights = None if np.ptp(weight[used]) == 0 else weight[used]
            found.append(Trees.of(model.fit(X[used], y[used], sample_weight=weights)))
    return found


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
    return (rows.y - mean) / (spread if spread > 1e-9 * abs(mean) else np.inf)
