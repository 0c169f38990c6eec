"""Messages: a header in the clear, what is sealed to the recipients, and the signature of the sender, in one file.

A message is a safetensors file with a JSON header (:mod:`mixtune.files`). The header says which study it belongs to
(by its fingerprint, so that it holds for one list of members), who sent it, to whom, in which step, which request it
answers, under which file name, and in plain words what is inside. The content is a Fernet token, whose key is sealed
to each recipient for this header alone. The signature is over header and content. A relay sees the header and sizes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.fernet import Fernet, InvalidToken

from mixtune import checks, files
from mixtune.errors import DataError
from mixtune_federated._keys import (
    SEAL_BYTES,
    Card,
    Key,
    check_not_kept,
)
from mixtune_federated._reading import reading
from mixtune_federated._types import Arrays, Content, File, Values

FORM, CONTENT_FORM = "mixtune-message", "mixtune-content"
VERSION = 2
#: Messages beyond this many bytes are refused before they are read.
MOST_BYTES = 2**26
#: What a coordinator may ask, and in which step of a run. Members give one answer in each step, so that whatever must
#: not be answered twice has one step.
STEPS = {"moments": 1, "ranks": 2, "parts": 3, "plays": 4, "keys": 1, "sums": 2, "shares": 3, "terms": 3, "trials": 4}
#: Bytes of a sealed key; a key of Fernet has 44.
_SLOT = 44 + SEAL_BYTES
_FIELDS = {"kind": str, "version": int, "study": str, "sender": str, "recipients": list, "step": int}
_FIELDS |= {"reply_to": str, "says": list, "public": dict, "file": str}


@dataclass(frozen=True, eq=False)
class Message:
    """A message as it travels.

    Attributes
    ----------
    header : dict
        ``kind`` ("request" or "answer"), ``version``, ``study`` (its fingerprint), ``sender``, ``recipients``,
        ``step``, ``reply_to`` (the digest of the request that an answer answers), ``file`` (the name of the file, or
        nothing), ``says`` (plain words) and ``public`` (what everybody may read).
    arrays : dict
        The sealed content and its keys.
    content : bytes
        The whole file.
    """

    header: Values
    arrays: Arrays
    content: bytes
    signature: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def kind(self) -> str:
        return str(self.header["kind"])

    @property
    def sender(self) -> str:
        return str(self.header["sender"])

    @property
    def step(self) -> int:
        return int(self.header["step"])

    @property
    def public(self) -> Values:
        return dict(self.header["public"])

    @property
    def size(self) -> int:
        return len(self.content)

    def save(self, path: File) -> Path:
        """Write the file whole or not at all; a key or a ledger is never replaced."""
        check_not_kept(Path(path))
        return files.write_file(Path(path), self.content, example="answer.mxf")

    def open(self, key: Key) -> Content:
        """What the message says to the owner of the key."""
        recipients = self.header["recipients"]
        what = f'the {self.kind} of "{self.sender}"'
        if key.name not in recipients:
            raise DataError(f'{what} is for {", ".join(recipients[:5])}, not for "{key.name}"', code="wrong-key")
        context = _text(self.header)
        inner = key.open(self.arrays["keys"][recipients.index(key.name)].tobytes(), what, context)
        return self._content(inner, f"{what} cannot be opened: it was altered; ask for it again")

    def reopened(self, key: Key) -> Content:
        """What the message says, for its sender, who made the key of the content from its own key."""
        problem = f'the {self.kind} of "{self.sender}" was not made with the key of "{key.name}"'
        return self._content(_sender_key(key, _text(self.header)), f"{problem}; pass the key of the sender")

    def _content(self, inner: bytes, problem: str) -> Content:
        """Values and arrays under the key of the content."""
        try:
            content = Fernet(inner).decrypt(urlsafe_b64encode(self.arrays["payload"].tobytes()))
        except (InvalidToken, ValueError) as error:
            raise DataError(problem, code="wrong-key") from error
        return files.unpack(content, form=CONTENT_FORM, where="the content")

    def check(self, card: Card) -> None:
        """Refuse a message that this member did not sign."""
        if not card.verifies(_signed(self.header, self.arrays), self.signature):
            problem = f'the {self.kind} of "{self.sender}" is not signed with the key that the study pins'
            remedy = "it was altered, or somebody else sent it: ask the member over another channel"
            raise DataError(f"{problem}; {remedy}", code="bad-signature")

    def explain(self) -> list[str]:
        """What the file says, who can read it and how large it is, in plain words."""
        header = self.header
        to = ", ".join(header["recipients"][:5]) + (", ..." if len(header["recipients"]) > 5 else "")
        lines = [f'{self.kind} of step {self.step}, signed by "{self.sender}", of study {header["study"][:16]}']
        lines += [f"it says: {line}" for line in header["says"]]
        lines += [f"only {to} can read that; a relay sees this summary and the size"]
        seen = [f"{name} = {json.dumps(value)}" for name, value in header["public"].items()]
        lines += [f"everybody can read: {line if len(line) < 200 else line[:200] + ' ...'}" for line in seen]
        return [*lines, f"size: {checks.in_words(self.size)} ({self.size:,} bytes)"]


def write_message(
    key: Key,
    recipients: Sequence[Card],
    *,
    kind: str,
    study: str,
    step: int,
    says: Sequence[str],
    reply_to: str = "",
    file: str = "",
    public: Values | None = None,
    spec: Values | None = None,
    arrays: Values | None = None,
) -> Message:
    """Seal ``spec`` and ``arrays`` to the recipients, and sign the whole."""
    header = {"kind": kind, "version": VERSION, "study": study, "sender": key.name, "step": step}
    header |= {"recipients": [card.name for card in recipients], "reply_to": reply_to}
    header |= {"says": list(says), "public": dict(public or {}), "file": file}
    context = _text(header)
    inner = _sender_key(key, context)
    payload = urlsafe_b64decode(Fernet(inner).encrypt(files.pack(spec or {}, arrays or {}, form=CONTENT_FORM)))
    slots = b"".join(card.seal(inner, context) for card in recipients)
    keys = np.frombuffer(slots, dtype=np.uint8).reshape(len(recipients), _SLOT)
    held = {"payload": np.frombuffer(payload, dtype=np.uint8), "keys": keys}
    signature = key.sign(_signed(header, held))
    content = files.pack({"header": header, "signature": signature.hex()}, held, form=FORM)
    return Message(header, held, content, signature)


def read_message(source: File | bytes, *, most_bytes: int = MOST_BYTES) -> Message:
    """Read a message; its size, shape and file name are checked here, its signature by :meth:`Message.check`."""
    where = "the message" if isinstance(source, bytes) else str(source)
    if isinstance(source, bytes):
        content, size = source, len(source)
    else:
        path = Path(source)
        if not path.is_file():
            raise DataError(f"there is no file {path}; check the name and the folder")
        size = path.stat().st_size
        content = b"" if size > most_bytes else path.read_bytes()
    if size > most_bytes:
        raise DataError(
            f"{where} has {checks.in_words(size)}, more than the {checks.in_words(most_bytes)} that a message may have"
        )
    spec, arrays = files.unpack(content, form=FORM, where=where)
    with reading(f"{where} is not a message of version {VERSION}", "ask for it again"):
        header, signature = spec["header"], bytes.fromhex(spec["signature"])
        if any(type(header[name]) is not kind for name, kind in _FIELDS.items()):
            raise ValueError("its header is damaged")
        recipients, texts = header["recipients"], [*header["recipients"], *header["says"]]
        whole = header["kind"] in ("request", "answer") and all(isinstance(text, str) for text in texts)
        if header["version"] != VERSION or not whole:
            raise ValueError("its header is of another kind")
        if arrays["keys"].shape != (len(recipients), _SLOT) or arrays["payload"].ndim != 1:
            raise ValueError("what is sealed has another size")
    if header["file"] and not isinstance(source, bytes) and Path(source).name != header["file"]:
        problem = f"{where} was signed as {header['file']!r}"
        raise DataError(f"{problem}; give it this name again, or ask the sender", code="other-name")
    return Message(header, arrays, content, signature)


def canonical(value: Any) -> bytes:
    """A value as JSON that is the same everywhere: what hashes and signatures are computed of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def hashed(*parts: bytes) -> bytes:
    """SHA-256 of several parts, each with its length before it."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(struct.pack("<Q", len(part)) + part)
    return sha.digest()


def _text(header: Values) -> bytes:
    return b"mixtune/1 message\n" + canonical(header)


def _signed(header: Values, arrays: Arrays) -> bytes:
    return hashed(_text(header), files.array_digest(arrays).encode())


def _sender_key(key: Key, context: bytes) -> bytes:
    """The key of a message's content, which the sender can make again."""
    return urlsafe_b64encode(key.secret(b"content", hashed(context)))
