"""Columns learned from the sources and then frozen: predictions of models that were fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._registry import check_array, field_values, register
from mixtune.arrays import Array, Floats, Integers
from mixtune.errors import DataError, ParameterError
from mixtune.features._base import through_numpy
from mixtune.features._curves import Oriented
from mixtune.features._random import RandomFeatures, read_random, write_random
from mixtune.files import arrays_below, joined_arrays

#: Rows times trees that are handled at a time, so that their places in all trees stay in the cache.
PLACES = 1 << 18
#: Most leaves of a tree whose reachable leaves are the bits of one number.
MOST_LEAVES = 32
#: The place of the only bit that is set: multiplied by this number, its highest five bits differ for all 32 places.
DE_BRUIJN = np.uint32(0x077CB531)
BIT_PLACES = np.empty(32, dtype=np.int64)
BIT_PLACES[((np.uint64(DE_BRUIJN) << np.arange(32, dtype=np.uint64)) % np.uint64(2**32) >> np.uint64(27))] = range(32)


@dataclass(frozen=True, eq=False)
class Reachable:
    """Which leaves of each tree a row can reach, by its value in each column.

    A row that a node sends to the right cannot reach the leaves on the left of that node. Leaves are numbered from left
    to right, so that of those that every node allows, the first is where the row ends.

    Attributes
    ----------
    columns : list of int
        That some node looks at.
    thresholds : list of arrays (m,)
        Of the nodes that look at each column, increasing.
    allowed : list of arrays (m + 1, trees)
        The leaves that remain, as bits, by the number of thresholds below the row's value.
    values : array (32 * trees,)
        Of the leaves of each tree, 32 for each.
    """

    columns: list[int]
    thresholds: list[Floats]
    allowed: list[Any]
    values: Floats

    def __call__(self, X: Floats) -> Floats:
        """The sum of all trees (n,), without what is added to it."""
        trees = len(self.values) // MOST_LEAVES
        first, found = np.arange(trees) * MOST_LEAVES, np.empty(len(X))
        step = max(1, PLACES // trees)
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            open_ = np.full((len(rows), trees), np.uint32(2**32 - 1))
            for column, thresholds, allowed in zip(self.columns, self.thresholds, self.allowed):
                open_ &= allowed[np.searchsorted(thresholds, rows[:, column], side="left")]
            open_ &= ~open_ + np.uint32(1)  # the lowest bit alone
            open_ *= DE_BRUIJN
            open_ >>= np.uint32(27)
            found[start : start + step] = self.values[BIT_PLACES[open_] + first].sum(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Trees:
    """All nodes of all trees, one after the other; a leaf is its own child.

    Attributes
    ----------
    column, left, right : arrays (nodes,) of int
        The input that a node looks at, and the nodes that it sends rows to: left up to its threshold.
    threshold, value : arrays (nodes,)
        The value counts in leaves only.
    roots : array (trees,) of int
    depth : int
        Of the deepest tree.
    base : float
        What is added to the sum of all trees.
    """

    column: Integers
    left: Integers
    right: Integers
    threshold: Floats
    value: Floats
    roots: Integers
    depth: int
    base: float

    def __post_init__(self) -> None:
        nodes = (np.size(self.column),)
        for name in ("column", "left", "right"):
            check_array(name, getattr(self, name), nodes, kind="i", least=0)
        check_array("roots", self.roots, (np.size(self.roots),), kind="i", least=0)
        check_array("threshold", self.threshold, nodes, limits=False)
        check_array("value", self.value, nodes)
        # No path is longer than the number of nodes; a forged depth must not take for ever.
        places = np.concatenate([self.left, self.right, self.roots])
        if np.any(places >= nodes[0]) or not 0 <= self.depth <= nodes[0] or not np.isfinite(self.base):
            raise DataError("the nodes of the trees do not fit together; save the model again")

    @classmethod
    def of(cls, fitted: Any, *, margin: float = 0.0) -> Trees:
        """The trees of a fitted HistGradientBoostingRegressor without categories.

        To thresholds, which may be values of rows, the ``margin`` is added.
        """
        parts = [stage[0].nodes for stage in fitted._predictors]
        roots = np.cumsum([0, *(len(part) for part in parts[:-1])])
        nodes = np.concatenate(parts)
        own, start = np.arange(len(nodes)), np.repeat(roots, [len(part) for part in parts])
        leaf = nodes["is_leaf"].astype(bool)
        left, right = (np.where(leaf, own, nodes[side].astype(np.int64) + start) for side in ("left", "right"))
        column = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64)
        threshold = np.where(leaf, 0.0, nodes["num_threshold"] + margin)
        base = float(np.ravel(fitted._baseline_prediction)[0])
        value = np.asarray(nodes["value"], np.float64)
        return cls(column, left, right, threshold, value, roots, int(nodes["depth"].max()), base)

    def first(self, count: int) -> Trees:
        """The first trees alone."""
        return replace(self, roots=self.roots[:count])

    @cached_property
    def reachable(self) -> Reachable | None:
        """The same trees by the leaves that rows can reach; None where one has too many, or nodes are not a tree."""
        values = np.zeros((len(self.roots), MOST_LEAVES))
        sides, nodes = (self.left.tolist(), self.right.tolist()), []
        for tree, root in enumerate(self.roots.tolist()):
            if (found := _leaves(*sides, root)) is None:
                return None
            values[tree, : len(found[0])] = self.value[found[0]]
            nodes += [(node, tree, bits) for node, bits in found[1]]
        places, trees, left = np.array(nodes, dtype=np.int64).reshape(-1, 3).T
        of_node, thresholds, allowed = self.column[places], [], []
        columns = np.unique(of_node).tolist()
        for column in columns:
            own = of_node == column
            levels, level = np.unique(self.threshold[places[own]], return_inverse=True)
            kept = np.full((len(levels) + 1, len(self.roots)), np.uint32(2**32 - 1))
            np.bitwise_and.at(kept, (level + 1, trees[own]), ~left[own].astype(np.uint32))
            thresholds.append(levels)
            allowed.append(np.bitwise_and.accumulate(kept, axis=0))
        return Reachable(columns, thresholds, allowed, values.ravel())

    def __call__(self, X: Floats) -> Floats:
        """The sum of all trees (n,) for the rows of ``X``."""
        return self.base + self.reachable(X) if self.reachable is not None else self.traversed(X)

    def traversed(self, X: Floats) -> Floats:
        """The same from node to node: slower, for trees of any shape."""
        found = np.empty(len(X))
        step = max(1, PLACES // max(len(self.roots), 1))
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            flat, width = rows.ravel(), rows.shape[1]
            first = np.arange(len(rows))[:, None] * width
            place = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
            for _ in range(self.depth):
                right = flat[first + self.column[place]] > self.threshold[place]
                place = np.where(right, self.right[place], self.left[place])
            found[start : start + step] = self.base + self.value[place].sum(axis=1)
        return found

    def arrays(self) -> dict[str, Any]:
        """All parts as arrays."""
        return {name: np.asarray(part) for name, part in field_values(self).items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Trees:
        """From what :meth:`arrays` gave."""
        parts = dict(arrays)
        return cls(**{**parts, "depth": int(parts["depth"]), "base": float(parts["base"])})


def _leaves(left: list[int], right: list[int], root: int) -> tuple[list[int], list[tuple[int, int]]] | None:
    """Leaves from left to right, and each node with the leaves on its left as bits."""
    leaves: list[int] = []
    nodes: list[tuple[int, int]] = []
    begun: dict[int, int] = {}
    waiting = [(root, False)]
    while waiting:
        node, passed = waiting.pop()
        if passed:  # all leaves on the left are known now
            nodes.append((node, (1 << len(leaves)) - (1 << begun[node])))
            waiting.append((right[node], False))
            continue
        if node in begun or len(leaves) > MOST_LEAVES or len(begun) > 2 * MOST_LEAVES:
            return None
        begun[node] = len(leaves)
        if left[node] == right[node] == node:
            leaves.append(node)
        else:
            waiting += [(node, True), (left[node], False)]
    return (leaves, nodes) if len(leaves) <= MOST_LEAVES else None


@dataclass(frozen=True, eq=False)
class LearnedColumns:
    """Two columns: a ridge model on random features, and boosted trees, each the mean over models of several folds.

    The models of a fold were fitted without the sources of that fold. In training, they compute the columns of these
    sources (:meth:`out_of_fold`). Rows of any other domain get the mean over all folds.

    Parameters
    ----------
    oriented
        What the models take as inputs.
    wide
        The random features of the ridge models.
    heads
        Their coefficients: (folds, width).
    trees
        Boosted trees of each fold.
    """

    oriented: Oriented
    wide: RandomFeatures
    heads: Floats
    trees: Sequence[Trees]

    def __post_init__(self) -> None:
        object.__setattr__(self, "trees", tuple(self.trees))
        if self.heads.shape != (len(self.trees), self.wide.n_features_out):
            raise ParameterError("heads must have a row for each fold and a column for each random feature")
        check_array("heads", self.heads, self.heads.shape)
        if any(np.any(each.column >= self.n_inputs) for each in self.trees):
            raise DataError(f"the trees look at more than {self.n_inputs} inputs; save the model again")
        check_array("order", self.oriented.order, (self.n_inputs,), kind="i")

    @property
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""
        return self.wide.n_inputs

    @property
    def n_features_out(self) -> int:
        """Number of features: 2."""
        return 2

    def transform(self, X: Array, /) -> Array:
        """Columns of rows that no model was fitted to."""
        return through_numpy(X, self.n_inputs, lambda rows: self.out_of_fold(rows, np.full(len(rows), -1)))

    def out_of_fold(self, X: Floats, folds: Integers) -> Floats:
        """Columns of rows by the models of each row's fold; where ``folds`` (n,) is negative, the mean over all."""
        found, inputs = np.empty((len(X), self.n_features_out)), self.oriented(X)
        for place in np.unique(folds).tolist():
            own, used = folds == place, range(len(self.trees)) if place < 0 else [place]
            found[own, 0] = self.wide.products(inputs[own], self.heads[list(used)].mean(axis=0))
            found[own, 1] = np.mean([self.trees[fold](inputs[own]) for fold in used], axis=0)
        return found


@dataclass(frozen=True, eq=False)
class TreeColumn:
    """One column: boosted trees that were fitted to many focal rows, the mean over models of several folds of rows.

    In training, each row gets the prediction of the model that has not seen it (:meth:`out_of_fold`).

    Parameters
    ----------
    oriented
        What the trees take as inputs.
    trees
        Boosted trees of each fold.
    """

    oriented: Oriented
    trees: Sequence[Trees]

    def __post_init__(self) -> None:
        object.__setattr__(self, "trees", tuple(self.trees))

    @property
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""
        return len(self.oriented.order)

    @property
    def n_features_out(self) -> int:
        """Number of features: 1."""
        return 1

    def transform(self, X: Array, /) -> Array:
        """The column of rows that no model was fitted to."""

        def mean(rows: Floats) -> Floats:
            inputs = self.oriented(rows)
            return np.mean([each(inputs) for each in self.trees], axis=0)[:, None]

        return through_numpy(X, self.n_inputs, mean)

    def out_of_fold(self, X: Floats, folds: Integers) -> Floats:
        """The column (n, 1) by the model of each row's fold, which has not seen it."""
        found, inputs = np.empty((len(X), 1)), self.oriented(X)
        for place, each in enumerate(self.trees):
            found[folds == place, 0] = each(inputs[folds == place])
        return found


def _write(learned: LearnedColumns, networks: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    settings, wide = write_random(learned.wide, networks)
    trees = {place: each.arrays() for place, each in enumerate(learned.trees)}
    own = {"heads": learned.heads, **field_values(learned.oriented)}
    return {"wide": settings, "folds": len(trees)}, {**joined_arrays({"wide": wide, **trees}), **own}


def _read(settings: dict[str, Any], arrays: dict[str, Any], supplied: Any) -> LearnedColumns:
    wide = read_random(settings["wide"], arrays_below(arrays, "wide"), supplied)
    trees = [Trees.from_arrays(arrays_below(arrays, place)) for place in range(settings["folds"])]
    return LearnedColumns(Oriented(arrays["shift"], arrays["scale"], arrays["order"]), wide, arrays["heads"], trees)


def _write_trees(column: TreeColumn, _: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    trees = {place: each.arrays() for place, each in enumerate(column.trees)}
    return {"folds": len(trees)}, {**joined_arrays(trees), **field_values(column.oriented)}


def _read_trees(settings: dict[str, Any], arrays: dict[str, Any], _: Any) -> TreeColumn:
    trees = [Trees.from_arrays(arrays_below(arrays, place)) for place in range(settings["folds"])]
    return TreeColumn(Oriented(arrays["shift"], arrays["scale"], arrays["order"]), trees)


register("feature map", "learned", LearnedColumns, _write, _read)
register("feature map", "trees", TreeColumn, _write_trees, _read_trees)
