"""What a member refuses to tell, and its ledger of what it has told. The member decides; the defaults are strict.

'Rows never leave' is not privacy by itself. Sums over few rows, or over a category with one person in it, tell about
single people; sums with the weight on one member are that member's; two sums over the same rows can be subtracted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mixtune import checks, files
from mixtune.errors import DataError
from mixtune.moments import Rows


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
        Refuse sums over more than this many features for each row: with as many features as rows, the sums tell
        whether a given person is among them.
    least_cell : int
        Refuse columns of 0 and 1 where fewer people than this have one of the two values: the target of a person alone
        in a category can be read off the sums.
    least_sources : int
        Refuse masked sums in which fewer members have a weight.
    largest_share : float
        Refuse masked sums in which one member has more than this share of the sources' weight.
    one_release : bool
        Refuse to release sums of the same rows twice: the difference of two sums tells about who was left out.
    largest_epsilon : float
        At level 3, what all releases of the same rows together may spend.

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
    def load(cls, path: str | Path) -> Policy:
        """Read rules from a TOML file; those that are not in it have their defaults."""
        try:
            return cls(**tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeError, tomllib.TOMLDecodeError, TypeError) as error:
            known = ", ".join(field.name for field in fields(cls))
            raise DataError(f"the policy {path} cannot be read ({error}); it may set {known}") from error

    def check_rows(self, inputs: Rows, n_features: int, names: tuple[str, ...]) -> None:
        """Refuse sums over too few rows, or over cells of few people; ``inputs`` are rows before the feature map."""
        count = len(inputs.y)
        if n_features > self.features_per_row * count:
            why = f"there are {count} rows; {self.features_per_row:g} features per row are the most"
            raise RefusedError(f"sums over {n_features} features", why, code="few-rows", rows=count)
        small = small_cells(inputs, names, self.least_cell)
        if small:
            why = f"fewer than {self.least_cell} people have one of their values: merge categories, or leave them out"
            raise RefusedError(f"sums over {checks.quoted(small)}", why, code="small-cell", columns=tuple(small))

    def check_weights(self, weights: Mapping[str, float]) -> None:
        """Refuse weights of the sources under which a sum would say too much about one member."""
        counted = sum(weight > 0 for weight in weights.values())
        if counted < self.least_sources:
            members = "1 member" if counted == 1 else f"{counted} members"
            why = f"{self.least_sources} are the least that hide each other"
            raise RefusedError(f"a sum with weight on {members}", why, code="few-sources")
        name = max(weights, key=lambda each: weights[each])
        share = weights[name] / sum(weights.values())
        if share > self.largest_share:
            why = f"{self.largest_share:.0%} is the most that one may have"
            raise RefusedError(f'a sum of which {share:.0%} is "{name}"', why, code="one-hot")


def small_cells(inputs: Rows, names: tuple[str, ...], least: int) -> list[str]:
    """Columns of 0 and 1 with 1 to ``least - 1`` rows of one value, also among the rows of one value of the target."""
    X, y = inputs.X, inputs.y
    binary = np.all((X == 0) | (X == 1), axis=0)
    groups = [np.ones(len(y), dtype=bool)]
    # A target of 0 and 1 turns products with it into counts of people, too.
    if np.all((y == 0) | (y == 1)):
        groups += [y == 0, y == 1]
    found = []
    for place in np.flatnonzero(binary).tolist():
        counts = [int(np.sum(X[group, place] == value)) for group in groups for value in (0, 1)]
        if any(0 < count < least for count in counts):
            found.append(names[place])
    return found


def data_hash(inputs: Rows) -> str:
    """A hash of the rows that does not depend on their order."""
    rows = np.ascontiguousarray(np.column_stack([inputs.X, inputs.y]) + 0.0)
    digests = sorted(hashlib.sha256(row.tobytes()).digest() for row in rows)
    return hashlib.sha256(str(rows.shape).encode() + b"".join(digests)).hexdigest()


@dataclass
class Ledger:
    """What a member has told so far: one line for each answer, in a file or in memory.

    Examples
    --------
    >>> ledger = Ledger()
    >>> ledger.record(study="s", data="d", step=1, request="r", epsilon=0.0)
    >>> ledger.other_request(data="d", step=1, request="q") is not None
    True
    """

    path: Path | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path is not None and Path(self.path).exists():
            try:
                lines = Path(self.path).read_text(encoding="utf-8").splitlines()
                self.entries = [dict(json.loads(line)) for line in lines]
            except (OSError, ValueError, TypeError) as error:
                raise DataError(f"the ledger {self.path} cannot be read ({error}); restore it from a copy") from error

    def other_request(self, *, data: str, step: int, request: str, run: str | None = None) -> dict[str, Any] | None:
        """An earlier answer at this step about the same rows, to another request; with ``run``, only of that run."""
        for entry in self.entries:
            same = (entry.get("data"), entry.get("step")) == (data, step) and run in (None, entry.get("run"))
            if same and entry.get("request") != request:
                return entry
        return None

    def answered(self, *, data: str, request: str) -> bool:
        """Whether this request was answered with these rows."""
        return self.kept_answer(data=data, request=request) is not None

    def kept_answer(self, *, data: str, request: str) -> bytes | None:
        """The answer with noise to this request (another one would let the noise average out); empty without noise."""
        found = (entry for entry in self.entries if (entry.get("data"), entry.get("request")) == (data, request))
        return next((base64.b64decode(entry.get("answer", "")) for entry in found), None)

    def spent(self, data: str) -> float:
        """Epsilon of all releases of these rows together."""
        spent = {entry["request"]: float(entry.get("epsilon", 0.0)) for entry in self.entries if entry["data"] == data}
        return sum(spent.values())

    def record(
        self, *, study: str, data: str, step: int, request: str, epsilon: float, run: str = "", answer: bytes = b""
    ) -> None:
        """Write down an answer, before it leaves; one with noise as a whole, so that it can be sent again."""
        if self.answered(data=data, request=request):
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"time": now, "study": study, "data": data, "step": step, "request": request, "epsilon": epsilon}
        entry |= {"run": run, **({"answer": base64.b64encode(answer).decode()} if answer else {})}
        entries = [*self.entries, entry]
        if self.path is not None:
            text = "".join(json.dumps(each) + "\n" for each in entries)
            files.write_file(Path(self.path), text.encode(), example="member.ledger")
        self.entries = entries
