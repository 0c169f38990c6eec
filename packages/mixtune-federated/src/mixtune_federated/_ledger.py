"""What a member has told so far, about whom: one line for each answer, in a file or in memory.

Entries are only ever added, under a lock that other processes respect. Each line holds the hash of the line before it,
and a second file holds the number of lines and the hash of the last one, so that lines that were changed or taken away
are noticed. People stand in it as tokens under a key that only the member has.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from mixtune import files
from mixtune.moments import Rows
from mixtune_federated._reading import reading
from mixtune_federated._types import Integers, Values

#: Hexadecimal digits of the token of a person, and of the hash of its rows that follows it.
_DIGITS = 16
#: Seconds to wait for another answer about the same people.
WAIT = 60.0
_RESTORE = "restore it and the file .head beside it from a copy"


@dataclass(frozen=True, eq=False)
class People:
    """Whose rows a member's table has.

    Attributes
    ----------
    data : str
        A hash of all rows and whose they are, in any order.
    places : array (n,) of int
        The person of each row, from 0.
    marks : tuple of str
        For each person a token, and a hash of the person's rows.
    whole : bool
        No identifier was given, so that the table counts as one: every row is a person where people are counted, and
        every other table may be about the same people.
    key : str
        Of the key behind tokens, a hash.
    """

    data: str
    places: Integers
    marks: tuple[str, ...]
    whole: bool
    key: str

    @classmethod
    def of(cls, rows: Rows, names: Sequence[str] | None, secret: bytes) -> People:
        """The people behind rows, by the identifier of each row; without them, each row is a person."""
        whole = names is None
        matrix = np.ascontiguousarray(np.column_stack([rows.X, rows.y]) + 0.0)
        hashes = [hashlib.sha256(row.tobytes()).hexdigest() for row in matrix]
        if names is None:
            # Of rows that repeat, each is one.
            seen, names = Counter[str](), []
            for text in hashes:
                names.append(f"{text} {seen[text]}")
                seen[text] += 1
        distinct, places = np.unique(np.asarray(names), return_inverse=True)
        held: list[list[str]] = [[] for _ in distinct]
        for place, text in zip(places.tolist(), hashes):
            held[place].append(text)
        pairs = zip(distinct.tolist(), ("".join(sorted(texts)) for texts in held))
        marks = tuple(sorted(_keyed(secret, name) + _keyed(secret, texts) for name, texts in pairs))
        data = hashlib.sha256("".join(marks).encode()).hexdigest()
        return cls(data, places, marks, whole, _keyed(secret, "key"))

    def count(self, rows: Integers) -> int:
        """How many people are behind some of the rows."""
        return len(np.unique(self.places[rows]))


@dataclass
class Ledger:
    """What a member has told so far.

    Examples
    --------
    >>> ledger, people = Ledger(), People.of(Rows(np.eye(2), np.ones(2)), ["ann", "bob"], b"a secret")
    >>> ledger.record(people, study="s", step=1, request="r", epsilon=0.5)
    >>> ledger.spent(people), ledger.kept_answer(people, "r"), ledger.kept_answer(people, "another")
    (0.5, b'', None)
    """

    path: Path | None = None
    entries: list[Values] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock: Any = threading.RLock()
        if self.path is not None:
            self.path = Path(self.path)
            files.check_place(self.path, "member.ledger")
            self._head = self.path.with_name(f"{self.path.name}.head")
            self._lock = FileLock(self.path.with_name(f"{self.path.name}.lock"), timeout=WAIT)
            with self.locked():
                pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else adds an entry meanwhile, and all that others have added is known."""
        with reading(f"the ledger {self.path} cannot be locked", "wait for other answers, or allow writing beside it"):
            self._lock.acquire()
        try:
            if self.path is not None:
                self._read()
            yield
        finally:
            self._lock.release()

    def shared(self, people: People) -> list[Values]:
        """Earlier answers that are, or may be, about some of these people."""
        mine = self._tokens(people, people.key)
        return [entry for entry in self.entries if _meet(mine, self._tokens(entry, people.key))]

    def fewest(self, people: People) -> int:
        """The fewest people that any combination of all releases so far, and of one more about these, can be about.

        People who are in the same releases, with the same rows, count alike in every combination.
        """
        tables = [set(people.marks), *(set(entry["people"]) for entry in self.entries if entry["people"])]
        return min(Counter(tuple(mark in table for table in tables) for mark in set().union(*tables)).values())

    def kept_answer(self, people: People, request: str) -> bytes | None:
        """The answer with noise to this request (another one would let the noise average out); empty without noise, and
        None where these rows did not answer it.
        """
        answers = (entry for entry in self.entries if (entry["data"], entry["request"]) == (people.data, request))
        return next((base64.b64decode(entry["answer"]) for entry in answers), None)

    def spent(self, people: People) -> float:
        """The most epsilon that any of these people has spent in all releases."""
        mine, whole, costs = self._tokens(people, people.key), 0.0, Counter[str]()
        for entry in self.entries:
            epsilon, theirs = float(entry["epsilon"]), self._tokens(entry, people.key)
            if mine is None or theirs is None:
                whole += epsilon
            else:
                costs.update(dict.fromkeys(mine & theirs, epsilon))
        return whole + max(costs.values(), default=0.0)

    def record(self, people: People, *, request: str, epsilon: float, answer: bytes = b"", **more: Any) -> None:
        """Write down an answer, before it leaves; one with noise as a whole, so that it can be sent again."""
        if self.kept_answer(people, request) is not None:
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry: Values = {"format": "mixtune-ledger", "time": now, **more, "request": request, "epsilon": epsilon}
        entry |= {"answer": base64.b64encode(answer).decode(), "data": people.data, "key": people.key}
        known = any(other["data"] == people.data for other in self.entries)
        entry |= {"whole": people.whole, "people": [] if known else list(people.marks)}
        with self.locked():
            if self.path is None:
                self.entries = [*self.entries, entry]
            else:
                self._add(entry)

    def _marks(self, entry: Values) -> list[str]:
        """The marks of the people behind an entry, which stand in the first one about the same rows."""
        return next(each["people"] for each in self.entries if each["data"] == entry["data"])

    def _tokens(self, about: People | Values, key: str) -> set[str] | None:
        """The tokens of people; None where a table counts as one, or where tokens are of another key."""
        told = about if isinstance(about, dict) else vars(about)
        if told["whole"] or told["key"] != key:
            return None
        marks = self._marks(about) if isinstance(about, dict) else about.marks
        return {mark[:_DIGITS] for mark in marks}

    def _read(self) -> None:
        """All entries of the file; an error where lines were changed or are gone."""
        assert self.path is not None
        with reading(f"the ledger {self.path} cannot be read", _RESTORE):
            self._content = self.path.read_bytes() if self.path.exists() else b""
            lines = self._content.splitlines()
            self.entries = [dict(json.loads(line)) for line in lines]
            hashes = ["", *(hashlib.sha256(line).hexdigest() for line in lines)]
            head: Any = json.loads(self._head.read_bytes()) if self._head.exists() else {"lines": 0, "last": ""}
            chained = all(entry["previous"] == last for entry, last in zip(self.entries, hashes))
            # A crash between both files leaves one line more than the second one knows of.
            rest = hashes[head["lines"] :]
            if not chained or rest[:1] != [head["last"]] or len(rest) > 2:
                raise ValueError("entries were changed, or are gone")
        self._last = hashes[-1]

    def _add(self, entry: Values) -> None:
        """Add a line to the file."""
        assert self.path is not None
        line = json.dumps({**entry, "previous": self._last}).encode()
        files.write_file(self.path, self._content + line + b"\n", example="member.ledger")
        head = {"lines": len(self.entries) + 1, "last": hashlib.sha256(line).hexdigest()}
        files.write_file(self._head, json.dumps(head).encode(), example="member.ledger.head")
        self._read()


def _keyed(secret: bytes, text: str) -> str:
    """A token that says nothing without the secret."""
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]


def _meet(one: set[str] | None, other: set[str] | None) -> bool:
    return one is None or other is None or not one.isdisjoint(other)
