"""What a member refuses to tell. The member decides; the defaults are strict.

'Rows never leave' is not privacy by itself. Sums over few rows, or over a category with one person in it, tell about
single people; sums with the weight on one member are that member's; two sums over the same rows can be subtracted.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mixtune import checks
from mixtune.errors import DataError
from mixtune.moments import Moments, Rows
from mixtune_federated._cells import LARGEST_OF_FEW, LARGEST_OF_ONE, concentration, few_people
from mixtune_federated._reading import reading
from mixtune_federated._types import File, Floats, Integers

#: Of focal sums, in a member's own units, the most that may lie in one direction, and by how much the mean square of
#: targets may exceed the member's own: beyond that, a score would tell one coefficient of the member's model.
LARGEST_DIRECTION, LARGEST_TARGET = 0.95, 100.0


class RefusedError(DataError):
    """A member refuses to answer: what was asked, and why."""

    default_code = "refused"

    def __init__(self, asked: str, why: str, *, code: str = "other-study", **fields: Any) -> None:
        super().__init__("refused: {asked}, but {why}", code=code, asked=asked, why=why, **fields)


@dataclass(frozen=True)
class Policy:
    """The rules of a member.

    Parameters
    ----------
    features_per_row : float
        Refuse sums over more than this many features for each person: with as many features as people, the sums tell
        whether a given person is among them. With 1 and more, leverages are not looked at, either.
    least_cell : int
        Refuse sums that tell about fewer people than this: over a level of a column with discrete values, where two
        such levels cross, or over any combination of columns that nearly vanishes for all others. Of one person, nine
        tenths of a combination are too much (the leverage). 0 and 1 refuse nothing.
    least_sources : int
        Refuse masked sums in which fewer members have a weight.
    largest_share : float
        Refuse masked sums in which one member has more than this share of the sources' weight, also if the largest others
        (``least_sources`` - 2 of them) collude with the coordinator and take theirs off.
    one_release : bool
        Refuse to release sums about the same people twice: the difference of two sums tells about who was left out.
        Without this, sums of the same columns may be released again, over the same people and rows, or over ones that
        differ by ``least_cell`` people at least.
    largest_epsilon : float
        At level 3, what all releases about a person together may spend.

    Examples
    --------
    >>> Policy().check_weights({"a": 1.0, "b": 0.0, "c": 0.0})
    Traceback (most recent call last):
        ...
    mixtune_federated._policy.RefusedError: refused: a sum with weight on 1 member, but 3 are the least that hide each other
    """  # noqa: E501

    features_per_row: float = 0.33
    least_cell: int = 5
    least_sources: int = 3
    largest_share: float = 0.8
    one_release: bool = True
    largest_epsilon: float = 8.0

    def __post_init__(self) -> None:
        checks.check_positive("features_per_row", self.features_per_row)
        checks.check_whole("least_cell", self.least_cell)
        checks.check_whole("least_sources", self.least_sources, least=1)
        checks.check_positive("largest_share", self.largest_share)
        checks.check_nonnegative("largest_epsilon", self.largest_epsilon)

    @classmethod
    def load(cls, path: File) -> Policy:
        """Read rules from a TOML file; those that are not in it have their defaults."""
        known = ", ".join(field.name for field in fields(cls))
        with reading(f"the policy {path} cannot be read", f"it may set {known}"):
            return cls(**tomllib.loads(Path(path).read_text(encoding="utf-8")))

    def check_rows(self, rows: Rows, n_features: int, names: Sequence[str], people: Integers | None = None) -> None:
        """Refuse sums over too few people, or ones that tell about fewer than the least.

        Parameters
        ----------
        rows : Rows
            Columns and targets, before the feature map.
        n_features : int
        names : sequence of str
            Of the columns.
        people : array (n,) of int
            Whose rows they are; by default, each is of another person.
        """
        places = np.arange(len(rows.y)) if people is None else people
        count = len(np.unique(places))
        if n_features > self.features_per_row * count:
            why = f"there are {count} {'rows' if people is None else 'people'}; "
            why += f"{self.features_per_row:g} features per row are the most"
            raise RefusedError(f"sums over {n_features} features", why, code="few-rows", rows=count)
        self.check_cells(np.column_stack([rows.X, rows.y]), places, [*names, "the target"])

    def check_cells(self, columns: Floats, places: Integers, names: Sequence[str]) -> None:
        """Refuse sums of products of columns, and of a constant, that tell about fewer people than the least."""
        least = self.least_cell
        if least < 2 or not len(columns):
            return
        small = few_people(columns, places, least)
        if small is not None:
            columns_of = tuple(names[place] for place in small)
            crossed = "one of their values" if len(small) == 1 else "one of their values, or where these cross"
            why = f"fewer than {least} people have {crossed}: merge categories, or leave them out"
            raise RefusedError(f"sums over {checks.quoted(columns_of)}", why, code="small-cell", columns=columns_of)
        if self.features_per_row < 1:
            self.check_combinations(np.column_stack([columns, np.ones(len(columns))]), places, names)

    def check_combinations(self, columns: Floats, places: Integers, names: Sequence[str] = ()) -> None:
        """Refuse columns of which a combination nearly vanishes but for fewer people than the least."""
        least = self.least_cell
        for most, limit in {1: LARGEST_OF_ONE, least - 1: LARGEST_OF_FEW}.items() if least > 1 else ():
            share, combined = concentration(columns, places, most)
            if share > limit:
                sizes = np.abs(combined) * np.std(columns, axis=0)
                large = np.flatnonzero(sizes[: len(names)] >= 0.1 * sizes.max()).tolist()
                told = tuple(names[place] for place in large)
                people = "1 person makes" if most == 1 else f"fewer than {least} people make"
                why = f"{people} up {share:.4g} of a combination of them: clip rare values, or leave columns out"
                asked = f"sums over {checks.quoted(told)}" if told else "sums over features or parts of the rows"
                raise RefusedError(asked, why, code="small-cell", columns=told)

    def check_probe(self, focal: Moments, own: Moments) -> None:
        """Refuse to score a model on sums that ask for one of its coefficients, in units of own rows."""
        values, vectors = np.linalg.eigh(np.asarray(own.gram) / own.count)
        # Where own rows do not vary, the model has no coefficient of its own.
        seen = values > 1e-9 * values[-1]
        units = vectors[:, seen] / np.sqrt(values[seen])
        weighed = np.linalg.eigvalsh(units.T @ np.asarray(focal.gram) @ units)
        share = float(weighed[-1] / np.sum(np.maximum(weighed, 0.0)))
        larger = float(focal.square) / focal.count > LARGEST_TARGET * float(own.square) / own.count
        if self.least_cell > 1 and (share > LARGEST_DIRECTION or larger):
            told = "their targets are far too large" if larger else f"{share:.0%} of them lies in one direction"
            why = f"{told}: the score would tell one coefficient of this member"
            raise RefusedError("a score on sums of the focal rows", why, code="probe")

    def check_weights(self, weights: Mapping[str, float]) -> None:
        """Refuse weights of the sources under which a sum would say too much about one member."""
        counted = sum(weight > 0 for weight in weights.values())
        if counted < self.least_sources:
            members = "1 member" if counted == 1 else f"{counted} members"
            why = f"{self.least_sources} are the least that hide each other"
            raise RefusedError(f"a sum with weight on {members}", why, code="few-sources")
        name, *others = sorted(weights, key=lambda each: -weights[each])
        # Members who collude with the coordinator take theirs off: what is left must still hide the largest.
        colluding = max(self.least_sources - 2, 0)
        share = weights[name] / (sum(weights.values()) - sum(weights[other] for other in others[:colluding]))
        if share > self.largest_share:
            told = f" without the {colluding} next largest" * (colluding > 0)
            why = f"{self.largest_share:.0%} is the most that one may have"
            raise RefusedError(f'a sum of which{told} {share:.0%} is "{name}"', why, code="one-hot")
