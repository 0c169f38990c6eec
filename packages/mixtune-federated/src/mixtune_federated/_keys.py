"""Keys of members: signatures, seals and derived secrets, from the library ``cryptography``.

Every member has one Ed25519 key to sign with and one X25519 key that others seal to, by HPKE (RFC 9180). The public
halves are its :class:`Card`, which the study pins; the private ones stay in a file that only its owner can read.
Everything else (the keys of one exchange, masks, tokens of people) is derived from them with HKDF-SHA256, so that a
member needs no other memory.
"""

from __future__ import annotations

import json
import os
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mixtune import files
from mixtune.errors import DataError
from mixtune_federated._reading import reading
from mixtune_federated._types import File, Values

#: Bytes of a public key, of a signature, and by which a sealed text is longer than the text.
KEY_BYTES, SIGNATURE_BYTES, SEAL_BYTES = 32, 64, 48
_FORMAT = "mixtune-key"
#: What no name holds, and the longest name: names become parts of file names on all systems.
_NOT_IN_NAMES, _LONGEST_NAME = set('/\\:*?"<>|'), 64
#: Files that are never written over: their endings, and what stands in their first line.
_KEPT = {".key": b'"mixtune-key"', ".ledger": b'"mixtune-ledger"'}


_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def check_name(name: str) -> None:
    """Refuse what cannot be part of a file name everywhere, or looks like something else.

    Examples
    --------
    >>> check_name("school 14")
    >>> check_name("../evil")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: '../evil' cannot be a name; use up to 64 letters, digits, spaces, dots and dashes
    """
    plain = name.isprintable() and name == unicodedata.normalize("NFKC", name) and not _NOT_IN_NAMES & set(name)
    if not plain or not 0 < len(name) <= _LONGEST_NAME or not name[0].isalnum() or name[-1] in " .":
        problem = f"{name!r} cannot be a name"
        raise DataError(f"{problem}; use up to {_LONGEST_NAME} letters, digits, spaces, dots and dashes", code="name")


def check_not_kept(path: Path) -> None:
    """Refuse to write over a key or a ledger, whatever its name is, or to call something else so."""
    place = path.resolve()
    kept = path.suffix.lower() in _KEPT or place.suffix.lower() in _KEPT
    if not kept and place.is_file():
        with place.open("rb") as file:
            begins = file.read(100)
        kept = any(mark in begins for mark in _KEPT.values())
    if kept:
        raise DataError(f"{path} is the place of a key or a ledger, which are never replaced; choose another name")


def derive(secret: bytes, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 (RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def agree(private: bytes, public: bytes) -> bytes:
    """The X25519 secret (RFC 7748) of two keys."""
    with reading("a public key gives no secret", "it was not made by mixtune", code="bad-key"):
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def public_of(private: bytes) -> bytes:
    """The public half of an X25519 key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def keystream(key: bytes, length: int) -> bytes:
    """ChaCha20 (RFC 8439) from a key that serves once: counter and nonce are zero."""
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(length))


@dataclass(frozen=True)
class Card:
    """What a study pins of a member: its name and public keys."""

    name: str
    signing: bytes
    sealing: bytes

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.signing) != KEY_BYTES or len(self.sealing) != KEY_BYTES:
            raise DataError(f'the keys of "{self.name}" must have {KEY_BYTES} bytes; copy the member\'s card again')

    @classmethod
    def from_dict(cls, values: Values) -> Self:
        with reading("a member's card is damaged", "copy it again"):
            return cls(str(values["name"]), bytes.fromhex(values["signing"]), bytes.fromhex(values["sealing"]))

    def to_dict(self) -> dict[str, str]:
        return {"name": self.name, "signing": self.signing.hex(), "sealing": self.sealing.hex()}

    def verifies(self, text: bytes, signature: bytes) -> bool:
        """Whether this member signed the text."""
        try:
            Ed25519PublicKey.from_public_bytes(self.signing).verify(signature, text)
        except (InvalidSignature, ValueError):
            return False
        return True

    def seal(self, text: bytes, context: bytes = b"") -> bytes:
        """Seal a text to this member: nobody else can open it, not even who sealed it."""
        return _SUITE.encrypt(text, X25519PublicKey.from_public_bytes(self.sealing), info=context)


@dataclass(frozen=True, repr=False)
class Key:
    """A member's private keys.

    Examples
    --------
    >>> key = Key.generate("north")
    >>> key.open(key.card.seal(b"a secret"), "the text")
    b'a secret'
    >>> key.card.verifies(b"a text", key.sign(b"a text")), key.card.verifies(b"another", key.sign(b"a text"))
    (True, False)
    """

    name: str
    signing: bytes
    sealing: bytes

    @classmethod
    def generate(cls, name: str) -> Self:
        """New keys from the operating system's random numbers."""
        return cls(name, os.urandom(KEY_BYTES), os.urandom(KEY_BYTES))

    @property
    def card(self) -> Card:
        """The public halves."""
        signing = Ed25519PrivateKey.from_private_bytes(self.signing)
        return Card(self.name, signing.public_key().public_bytes_raw(), public_of(self.sealing))

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    def sign(self, text: bytes) -> bytes:
        """An Ed25519 signature (RFC 8032)."""
        return Ed25519PrivateKey.from_private_bytes(self.signing).sign(text)

    def open(self, sealed: bytes, what: str, context: bytes = b"") -> bytes:
        """The text that was sealed to this member; an error that names ``what`` where it cannot be opened."""
        try:
            return _SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(self.sealing), info=context)
        except (InvalidTag, ValueError) as error:
            raise DataError(
                f"{what} cannot be opened: it was altered, or sealed for another key; check the key, or ask for it "
                "again",
                code="wrong-key",
            ) from error

    def secret(self, purpose: bytes, salt: bytes) -> bytes:
        """A secret for one purpose: the same again for the same ``salt``, so that nothing has to be kept."""
        return derive(self.sealing, salt=salt, info=b"mixtune/1 " + purpose)

    def save(self, path: File) -> Path:
        """Write a file that only its owner can read; an existing file is never replaced."""
        path = Path(path)
        files.check_place(path, "member.key")
        values = {"format": _FORMAT, "version": 1, "name": self.name}
        text = json.dumps({**values, "signing": self.signing.hex(), "sealing": self.sealing.hex()}, indent=1)
        try:
            with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                file.write(text)
        except FileExistsError as error:
            raise DataError(
                f"{path} exists, and a key that is lost cannot be made again; choose another name"
            ) from error
        except OSError as error:
            with suppress(OSError):  # a partial key is of no use
                path.unlink(missing_ok=True)
            raise DataError(f"{path} cannot be written: {error.strerror or error}; choose another folder") from error
        return path

    @classmethod
    def load(cls, path: File) -> Self:
        """Read a file of :meth:`save`."""
        with reading(f"the key {path} cannot be read", "check the path"):
            content = Path(path).read_bytes()
        with reading(f"{path} is not a key of mixtune", "pass the file that join wrote"):
            values = json.loads(content)
            check_name(values["name"])
            if values["format"] != _FORMAT:
                raise ValueError("it is of another kind")
            return cls(values["name"], bytes.fromhex(values["signing"]), bytes.fromhex(values["sealing"]))


def key_path(folder: Path, name: str) -> Path:
    """The file of a member's key in the folder of the study: NAME.key, else the only key there is."""
    keys = sorted(folder.glob("*.key"))
    if (own := folder / f"{name}.key") in keys:
        return own
    if not keys:
        raise DataError(f"there is no key in the folder of the study, {folder}; join it first, or pass the key (--key)")
    if len(keys) > 1:
        raise DataError(f"there are {len(keys)} keys in the folder of the study, {folder}; choose one (--key)")
    return keys[0]
