"""The study: what all members agreed on before anything is sent, in one text file that people can read.

``study.toml`` names the members with their pinned keys, the columns with their levels and scales, the feature map with
its hash, the method, the level of protection and the limits. Its fingerprint stands in every message; a request that
differs from the study in anything is refused. People compare the fingerprint over the telephone.
"""

from __future__ import annotations

import datetime
import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from mixtune import checks, files
from mixtune.data import TableEncoder, read_training
from mixtune.errors import DataError, ParameterError
from mixtune.features import columns_and_random, to_spec
from mixtune.moments import Rows
from mixtune_federated._keys import Card, Key, check_name, check_not_kept
from mixtune_federated._messages import MOST_BYTES, Message, canonical, write_message
from mixtune_federated._policy import Policy
from mixtune_federated._reading import reading
from mixtune_federated._types import File, Floats, Values

_FORMAT, _VERSION = "mixtune-study", 1
#: Digits of the scales in a study: enough to compute with, and they say little about the rows they were taken from.
DIGITS = 2
#: What a study states about a column besides its scales.
_COLUMN_FIELDS = ("kind", "name", "levels", "parts", "origin", "dates")
#: What a study says about missing values.
_FILL = "a study does not fill in values: fill or drop these rows in the member's table"
#: Up to so many members all share masks with one another; with more, each shares masks with so many others.
COMPLETE, DEGREE = 64, 20
METHODS, WEIGHTS = ("fixed", "tuned"), ("predictive", "equal")


@dataclass(frozen=True)
class FixedMethod:
    """Parameters of the method at fixed parameters; others are defaults of :class:`mixtune.RegretOptimalRegressor`."""

    weights: str = "predictive"
    ridge: float = 1.0

    def __post_init__(self) -> None:
        checks.check_choice("weights", self.weights, WEIGHTS)
        checks.check_nonnegative("ridge", self.ridge)


@dataclass(frozen=True)
class Privacy:
    """What level 3 promises: (epsilon, delta), and the public bounds that rows are clipped to.

    ``row_norm`` bounds the length of a row of features, in the units of the study; ``target_bound`` that of a target,
    in multiples of the target's scale.
    """

    epsilon: float = 3.0
    delta: float = 1e-6
    row_norm: float | None = None
    target_bound: float = 3.0

    def __post_init__(self) -> None:
        checks.check_positive("epsilon", self.epsilon)
        checks.check_positive("target_bound", self.target_bound)
        if self.row_norm is not None:
            checks.check_positive("row_norm", self.row_norm)
        if not 0 < self.delta < 0.5:
            raise ParameterError(f"delta must be between 0 and 0.5; got {self.delta!r}")


@dataclass(frozen=True)
class FeatureSpec:
    """The feature map: the columns themselves, and ``width`` random features beside them."""

    width: int = 0
    seed: int = 0

    def build(self, shift: Floats, scale: Floats) -> Any:
        return columns_and_random(len(shift), width=self.width, seed=self.seed, units=(shift, scale))


@dataclass(frozen=True)
class Limits:
    """The largest message, and how many members may drop out between the two exchanges of masked sums.

    Of k neighbours, k - ``drop_outs`` are needed to recover the masks of one that dropped out: as many would have to
    collude with the coordinator to read a member's sums. With ``confirm`` every answer has a mask of its own, which the
    neighbours take off in a third exchange: for a member that took part, or else those of a member that dropped out,
    never both. A coordinator that reports a member as gone although it answered then learns nothing.
    """

    message_bytes: int = MOST_BYTES
    drop_outs: int = 1
    confirm: bool = False

    def __post_init__(self) -> None:
        checks.check_whole("message_bytes", self.message_bytes, least=1000)
        checks.check_whole("drop_outs", self.drop_outs)
        if not isinstance(self.confirm, bool):
            raise ParameterError(f"confirm must be true or false; got {self.confirm!r}")


#: Settings in tables of their own.
_PARTS: Values = {"fixed": FixedMethod, "features": FeatureSpec, "privacy": Privacy, "limits": Limits}


@dataclass(frozen=True, eq=False)
class Study:
    """An agreed study.

    Attributes
    ----------
    name, focal : str
        Of the study, and of the member that the model is for, who also coordinates.
    encoder : TableEncoder
        Columns and levels.
    shift, scale : arrays (d,)
        Of the encoded columns.
    target_shift, target_scale : float
    level : int
        1 (sealed), 2 (masked) or 3 (masked and differentially private).
    method : str
        "fixed" or "tuned".
    expires : date
        After this day, no member answers.
    map_hash : str
        Of the feature map; empty for the one that the settings give here.
    members : tuple of Card

    Examples
    --------
    See the page on federated studies.
    """

    name: str
    focal: str
    encoder: TableEncoder
    shift: Floats
    scale: Floats
    target_shift: float
    target_scale: float
    expires: datetime.date
    level: int = 2
    method: str = "fixed"
    fixed: FixedMethod = FixedMethod()
    features: FeatureSpec = FeatureSpec()
    privacy: Privacy = Privacy()
    limits: Limits = Limits()
    members: tuple[Card, ...] = ()
    map_hash: str = ""

    def __post_init__(self) -> None:
        if self.level not in (1, 2, 3) or isinstance(self.level, bool):
            raise ParameterError(f"level must be 1 (sealed), 2 (masked) or 3 (private); got {self.level!r}")
        checks.check_choice("method", self.method, METHODS)
        if self.limits.confirm and self.tuned_by_sums:
            raise ParameterError("confirm goes with the fixed method, or with level 3; the tuned one needs other sums")
        for name in (self.name, self.focal):
            check_name(name)
        names = [card.name for card in self.members]
        if len({name.casefold() for name in names}) < len(names):
            raise DataError("two members of the study have the same name, up to capital letters; give each its own")
        found = hashlib.sha256(canonical(to_spec(self.feature_map)[0])).hexdigest()
        if self.map_hash not in ("", found):
            raise DataError(
                f"the feature map of study {self.name!r} has the hash {self.map_hash[:16]}, the one that is built here "
                f"{found[:16]}; use the versions of mixtune and numpy that the study was made with. If you edited the "
                "columns or the features yourself before anybody joined, delete the line with the hash",
                code="map-hash",
            )
        object.__setattr__(self, "map_hash", found)

    @classmethod
    def new(
        cls,
        like: Sequence[File],
        *,
        target: str,
        focal: str,
        name: str = "study",
        days: int = 90,
        today: datetime.date | None = None,
        **settings: Any,
    ) -> Self:
        """Plan a study from tables with its columns; the scales are those of the first table, to two digits.

        Parameters
        ----------
        like
            Tables with the columns; the levels of text columns are those that occur in any of them. Rows may be made
            up. The first one also gives the scales: pass the focal member's own, or edit the scales afterwards.
        target, focal, name
            The column to predict, the focal member, and the name of the study.
        days
            So long the study is open.
        **settings
            ``level``, ``method``, ``fixed``, ``features``, ``privacy``, ``limits``.
        """
        read = read_training(list(like), target=target, target_kind="number")
        encoder = replace(read.encoder, domain=None, focal=None, unused=())
        notes: list[Any] = [note for note in read.notes if getattr(note, "code", "") == "filled-in"]
        if notes:
            raise DataError(f"values are missing in {notes[0].fields['columns']}; {_FILL}", code="missing-values")
        first = read.domains.focal_domain
        shift, scale = np.zeros(len(encoder.names)), np.ones(len(encoder.names))
        kinds = [column["kind"] for column in encoder.to_dict()["columns"]]
        numbers = {name for kind, column in zip(kinds, encoder.columns) if kind != "levels" for name in column.outputs}
        for place, column in enumerate(encoder.names):
            values = np.asarray(first.X)[:, place]
            if column in numbers and set(np.unique(values)) - {0.0, 1.0}:
                shift[place], scale[place] = _location(values)
        level, spread = _location(np.asarray(first.y))
        last = (today or datetime.date.today()) + datetime.timedelta(days=days)
        made = cls(name, focal, encoder, shift, scale, level, spread, last, **settings)
        # What the file does not say is not kept: members have the file.
        return cls.from_dict(made.to_dict())

    # --- what follows from it -----------------------------------------------------------------------------------

    @cached_property
    def feature_map(self) -> Any:
        """The frozen map that every member uses."""
        return self.features.build(self.shift, self.scale)

    @property
    def n_features(self) -> int:
        return self.feature_map.n_features_out

    @property
    def scored(self) -> bool:
        """Whether members score their models on the focal member's sums, for weights."""
        return self.level == 2 and self.method == "fixed" and self.fixed.weights == "predictive"

    @property
    def tuned_by_sums(self) -> bool:
        """Whether members do validation tasks of which only sums are read."""
        return self.level == 2 and self.method == "tuned"

    @property
    def requests(self) -> tuple[str, ...]:
        """What the coordinator may ask, in this order."""
        if self.level == 1:
            return ("moments",) if self.method == "fixed" else ("moments", "ranks", "parts", "plays")
        return ("keys", "sums", "shares", *(("terms", "trials") if self.tuned_by_sums else ()))

    @property
    def row_norm(self) -> float:
        """The bound on rows of features at level 3."""
        return self.privacy.row_norm or float(np.sqrt(self.n_features))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the whole study."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()

    @cached_property
    def columns_hash(self) -> str:
        """SHA-256 of what rows are turned into: sums of the same columns can be compared."""
        told = self.to_dict()
        return hashlib.sha256(canonical([told[name] for name in ("target", "features", "columns")])).hexdigest()

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """All members but the focal one, in the order of the study."""
        return tuple(card.name for card in self.members if card.name != self.focal)

    @cached_property
    def graph(self) -> list[tuple[int, ...]]:
        """Who shares masks with whom, of :attr:`sources`."""
        return mask_graph(len(self.sources), bytes.fromhex(self.fingerprint))

    def neighbours(self, name: str) -> tuple[int, ...]:
        """The places of the members that share masks with a source."""
        return self.graph[self.sources.index(name)]

    @property
    def threshold(self) -> int:
        """How many neighbours recover the masks of one that dropped out."""
        return max(min(map(len, self.graph), default=1) - self.limits.drop_outs, 1)

    def write(self, key: Key, to: Sequence[str], says: Sequence[str], spec: Values, **how: Any) -> Message:
        """A message of the study, sealed to members; ``how`` are the other options of :func:`write_message`."""
        cards, words = [self.card(name) for name in to], [*says, *self.promise]
        return write_message(key, cards, study=self.fingerprint, says=words, spec=spec, **how)

    def card(self, name: str) -> Card:
        """The pinned keys of a member."""
        if name in self._cards:
            return self._cards[name]
        raise DataError(
            f'"{name}" is not a member of study "{self.name}"; the members are {checks.quoted(list(self._cards))}'
        )

    @cached_property
    def _cards(self) -> dict[str, Card]:
        return {card.name: card for card in self.members}

    def joined(self, *cards: Card) -> Self:
        """The study with further members."""
        for card in cards:
            if any(card.name == other.name and card != other for other in self.members):
                raise DataError(f'"{card.name}" is in the study with other keys; choose another name')
        return replace(self, members=(*self.members, *(card for card in cards if card not in self.members)))

    def check(self, today: datetime.date | None = None) -> None:
        """Refuse a study that cannot run: too few members, no focal member, or expired."""
        if self.focal not in self._cards:
            raise DataError(f'the focal member "{self.focal}" has not joined study "{self.name}"; let it join')
        least = 1 if self.level == 1 else 3
        if len(self.sources) < least:
            raise DataError(
                f'study "{self.name}" has {len(self.sources)} members beside the focal one; level {self.level} needs '
                f"at least {least}, so that sums hide each of them"
            )
        if self.limits.confirm and 2 * self.threshold <= max(map(len, self.graph)):
            # Half of a member's neighbours, told that it is gone, would give its key, and the others its own mask.
            most = (max(map(len, self.graph)) - 1) // 2
            raise DataError(f"with confirm, at most {most} of so few members may drop out; lower drop_outs")
        if (today or datetime.date.today()) > self.expires:
            raise DataError(f'study "{self.name}" expired on {self.expires}; agree on a new one', code="expired")

    @property
    def promise(self) -> tuple[str, ...]:
        """What level 3 promises, as every message says it."""
        told = f"differentially private: epsilon {self.privacy.epsilon:g}, delta {self.privacy.delta:g} for each row"
        return (told,) if self.level == 3 else ()

    @property
    def predicts(self) -> str:
        """What is predicted from which columns."""
        columns = checks.quoted([column.name for column in self.encoder.columns], 20)
        return f'predicts "{self.encoder.target.name}" from {columns}: {self.n_features} features'

    def describe(self) -> list[str]:
        """What was agreed on, in sentences."""
        kinds = {1: "moments sealed to the coordinator", 2: "masked sums", 3: "masked sums with differential privacy"}
        lines = [
            f"fingerprint {self.fingerprint}: compare it with the other members over the telephone",
            f'level {self.level} ({kinds[self.level]}), method {self.method}; the model is for "{self.focal}"',
            self.predicts,
            f"feature map {self.map_hash[:16]}; open until {self.expires}",
            f"{len(self.members)} members: {checks.quoted(list(self._cards), 20)}",
        ]
        if self.level > 1 and self.members:
            most, least = self.threshold, min(self.threshold, Policy().least_sources - 1)
            others = "1 other member" if most == 1 else f"{most} other members"
            lines.append(
                f"the coordinator can read a member's sums with the help of {others}, or of {least} if it also lies "
                "about who takes part (the member's policy sets this number: least_sources - 1)"
            )
            if self.limits.drop_outs and not self.limits.confirm:
                given = len(self.sources) * self.limits.drop_outs // self.threshold
                lines.append(
                    f"it can read the sums of {max(given, 1)} by reporting them as gone although they answered; "
                    "not with confirm, which takes a third exchange"
                )
        return [*lines, *self.promise]

    def read(self, table: Any) -> Rows:
        """Rows of a table or file as the study encodes them: inputs before the feature map, and targets.

        Missing columns, missing values, texts in columns of numbers and levels that the study does not know are errors.
        How a CSV file is written is detected.
        """
        if isinstance(table, Rows):
            return table
        where = str(table) if isinstance(table, str | Path) else "the table"
        X, y, notes = self.encoder.read(table, what=f'study "{self.name}"', fill=_FILL)
        if odd := [note for note in notes if note.code == "unseen-levels"]:
            told = f'column "{odd[0].fields["column"]}" has {odd[0].fields["values"]}'
            problem = f'{where} has levels that study "{self.name}" does not know: {told}'
            remedy = "recode these rows, or add the levels to the study before anybody joins"
            raise DataError(f"{problem}; {remedy}", code="other-levels")
        return Rows(X, y)

    def identifiers(self, table: Any, identifier: str | Sequence[Any], count: int) -> list[str]:
        """Whose each of ``count`` rows is, by a column of the table, or as given."""
        values, what = identifier, "identifier"
        if isinstance(identifier, str):
            if isinstance(table, Rows):
                raise DataError("rows have no column of identifiers; pass the identifier of each row")
            # A column of labels is read as it is written.
            whole = replace(self.encoder, domain=identifier).table(table)
            if identifier not in whole.column_names:
                raise DataError(f'there is no column "{identifier}"; name the one that says whose a row is')
            values, what = whole.column(identifier).to_pylist(), f'"{identifier}"'
        names = ["" if value is None else str(value).strip() for value in values]
        if len(names) != count or not all(names):
            raise DataError(f"{what} must say whose each of the {count} rows is; fill the gaps", code="missing-values")
        return names

    def prepared(self, rows: Rows) -> Rows:
        """Features, and targets about the shift of the study: what sums are taken of."""
        return Rows(np.asarray(self.feature_map.transform(rows.X)), rows.y - self.target_shift)

    # --- as a file ----------------------------------------------------------------------------------------------

    def to_dict(self) -> Values:
        """The study as plain values; what is None is left out."""
        columns: list[Values] = []
        start = 0
        for column, described in zip(self.encoder.columns, self.encoder.to_dict()["columns"]):
            stop = start + len(column.outputs)
            own = _known({name: described.get(name) for name in _COLUMN_FIELDS})
            own |= {"shift": self.shift[start:stop].tolist(), "scale": self.scale[start:stop].tolist()}
            columns.append(own)
            start = stop
        head = {"format": _FORMAT, "version": _VERSION, "name": self.name, "focal": self.focal, "level": self.level}
        target = {"name": self.encoder.target.name, "shift": self.target_shift, "scale": self.target_scale}
        parts = {name: _known(asdict(getattr(self, name))) for name in _PARTS}
        parts["features"]["hash"] = self.map_hash
        members = [card.to_dict() for card in self.members]
        head |= {"method": self.method, "expires": self.expires.isoformat()}
        return {**head, "target": target, **parts, "columns": columns, "members": members}

    @classmethod
    def from_dict(cls, values: Values) -> Self:
        """Build a study from :meth:`to_dict`; anything unknown is refused."""
        with reading("the study is damaged", "copy it again"):
            if values["format"] != _FORMAT or values["version"] != _VERSION:
                raise DataError(f"this is not a study of version {_VERSION}; use the mixtune that it was made with")
            known = {"format", "version", "name", "focal", "level", "method", "expires", "target", "columns", "members"}
            if odd := sorted(set(values) - known - set(_PARTS)):
                raise DataError(f"the study has settings that are not known: {checks.quoted(odd)}; update mixtune")
            columns, target = values["columns"], values["target"]
            spec = [{"median": None, "indicator": False, "dates": None, **column} for column in columns]
            described = {"version": 1, "columns": spec, "target": {"name": target["name"], "classes": None}}
            described |= {"impute": False, "domain": None, "focal": None, "unused": []}
            given = {name: dict(values[name]) for name in _PARTS}
            map_hash = given["features"].pop("hash", "")
            parts = {name: kind(**given[name]) for name, kind in _PARTS.items()}
            shift, scale = (np.array([v for c in columns for v in c[side]], float) for side in ("shift", "scale"))
            return cls(
                str(values["name"]),
                str(values["focal"]),
                TableEncoder.from_dict(described),
                shift,
                scale,
                float(target["shift"]),
                checks.check_positive("scale", target["scale"]),
                datetime.date.fromisoformat(str(values["expires"])),
                level=values["level"],
                method=values["method"],
                members=tuple(Card.from_dict(card) for card in values.get("members", ())),
                map_hash=map_hash,
                **parts,
            )

    def to_toml(self) -> str:
        """The study as text."""
        lines: list[str] = []
        for name, value in self.to_dict().items():
            if isinstance(value, dict):
                lines += ["", f"[{name}]", *(f"{key} = {_toml(inner)}" for key, inner in value.items())]
            elif isinstance(value, list):
                for part in value:
                    lines += ["", f"[[{name}]]", *(f"{key} = {_toml(inner)}" for key, inner in part.items())]
            else:
                lines.append(f"{name} = {_toml(value)}")
        return "\n".join([*lines, ""])

    @classmethod
    def from_toml(cls, text: str) -> Self:
        with reading("the study is not valid TOML", "copy it again"):
            return cls.from_dict(tomllib.loads(text))

    def save(self, path: File) -> Path:
        """Write the file whole or not at all; a key or a ledger is never replaced."""
        check_not_kept(Path(path))
        return files.write_file(Path(path), self.to_toml().encode(), example="study.toml")

    @classmethod
    def load(cls, path: File) -> Self:
        """Read a file of :meth:`save`."""
        with reading(f"the study {path} cannot be read", "check the path"):
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))


def mask_graph(count: int, seed: bytes) -> list[tuple[int, ...]]:
    """The places of each member's neighbours, in increasing order, of ``count`` members.

    A complete graph, or a ring in random order that links each member to the :data:`DEGREE` nearest. The order follows
    from ``seed``, the fingerprint of the study: nobody can choose a member's neighbours later.

    Examples
    --------
    >>> mask_graph(4, b"")[1]
    (0, 2, 3)
    >>> {len(each) for each in mask_graph(1000, b"")}
    {20}
    """
    if count <= COMPLETE:
        return [tuple(j for j in range(count) if j != i) for i in range(count)]
    number = int.from_bytes(hashlib.sha256(b"mixtune/1 graph" + seed).digest(), "big")
    order = np.random.default_rng(number).permutation(count)
    steps = [step for half in range(1, DEGREE // 2 + 1) for step in (half, -half)]
    found: list[tuple[int, ...]] = [()] * count
    for place, member in enumerate(order.tolist()):
        found[member] = tuple(sorted(int(order[(place + step) % count]) for step in steps))
    return found


def _location(values: Floats) -> tuple[float, float]:
    """Mean and standard deviation to a few digits of the latter; 1 where values do not vary."""
    mean, spread = float(np.mean(values)), float(np.std(values))
    if not spread > 1e-9 * abs(mean):
        return float(f"{mean:.{DIGITS - 1}e}"), 1.0
    unit = 10.0 ** (np.floor(np.log10(spread)) - DIGITS + 1)
    return float(f"{round(mean / unit) * unit:.12g}"), float(f"{round(spread / unit) * unit:.12g}")


def _known(values: Values) -> Values:
    return {name: value for name, value in values.items() if value is not None}


def _toml(value: Any) -> str:
    """A value as TOML: JSON but for what TOML spells otherwise."""
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, float):
        return repr(value)
    return canonical(value).decode().replace("\\u007f", "\\u007F")
