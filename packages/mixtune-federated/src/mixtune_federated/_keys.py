"""Keys of members: signatures, seals and derived secrets, from the library ``cryptography``.

Every member has one Ed25519 key to sign with and one X25519 key that others seal to. The public halves are its
:class:`Card`, which the study pins; the private ones stay in a file that only its owner can read. Everything else (the
keys of one exchange, masks, noise) is derived from them with HKDF-SHA256, so that a member needs no other memory.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from mixtune import checks, files
from mixtune.errors import DataError

#: Bytes of a public key, a signature and the tag of a sealed text.
KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES = 32, 64, 16
_FORMAT = "mixtune-key"
#: Every derived secret says what it is for, so that none serves two purposes.
_SEAL = b"mixtune/1 seal"


#: Where the primitives live, below ``cryptography``.
PLACES = {
    "exceptions": ("InvalidSignature", "InvalidTag"),
    "hazmat.primitives.asymmetric.ed25519": ("Ed25519PrivateKey", "Ed25519PublicKey"),
    "hazmat.primitives.asymmetric.x25519": ("X25519PrivateKey", "X25519PublicKey"),
    "hazmat.primitives.ciphers": ("Cipher",),
    "hazmat.primitives.ciphers.aead": ("ChaCha20Poly1305",),
    "hazmat.primitives.ciphers.algorithms": ("ChaCha20",),
    "hazmat.primitives.hashes": ("SHA256",),
    "hazmat.primitives.kdf.hkdf": ("HKDF",),
}


@cache
def primitives() -> SimpleNamespace:
    """The primitives of ``cryptography`` that the protocol uses."""
    found = SimpleNamespace()
    for place, names in PLACES.items():
        module = checks.import_extra(f"cryptography.{place}", "federated", "a federated study")
        for name in names:
            setattr(found, name, getattr(module, name))
    return found


def derive(secret: bytes, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 (RFC 5869)."""
    lib = primitives()
    return lib.HKDF(algorithm=lib.SHA256(), length=length, salt=salt, info=info).derive(secret)


def agree(private: bytes, public: bytes) -> bytes:
    """The X25519 secret (RFC 7748) of two keys."""
    lib = primitives()
    try:
        return lib.X25519PrivateKey.from_private_bytes(private).exchange(lib.X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise DataError("a public key gives no secret; it was not made by mixtune", code="bad-key") from error


def public_of(private: bytes) -> bytes:
    """The public half of an X25519 key."""
    return primitives().X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def keystream(key: bytes, length: int) -> bytes:
    """ChaCha20 (RFC 8439) from a key that serves once: counter and nonce are zero."""
    lib = primitives()
    return lib.Cipher(lib.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(length))


def encrypt(key: bytes, text: bytes, context: bytes) -> bytes:
    """ChaCha20-Poly1305 under a key that serves once; ``context`` is not hidden, but must be the same when opened."""
    return primitives().ChaCha20Poly1305(key).encrypt(bytes(12), text, context)


def decrypt(key: bytes, sealed: bytes, context: bytes, what: str) -> bytes:
    """The text of :func:`encrypt`; an error that names ``what`` where it was altered or is for another key."""
    lib = primitives()
    try:
        return lib.ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except lib.InvalidTag as error:
        raise DataError(
            f"{what} cannot be opened: it was altered, or sealed for another key; check the key, or ask for it again",
            code="wrong-key",
        ) from error


@dataclass(frozen=True)
class Card:
    """What a study pins of a member: its name and public keys."""

    name: str
    signing: bytes
    sealing: bytes

    def __post_init__(self) -> None:
        if len(self.signing) != KEY_BYTES or len(self.sealing) != KEY_BYTES:
            raise DataError(f'the keys of "{self.name}" must have {KEY_BYTES} bytes; copy the member\'s card again')

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        try:
            name, signing, sealing = (values[key] for key in ("name", "signing", "sealing"))
            return cls(str(name), bytes.fromhex(signing), bytes.fromhex(sealing))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"a member's card is damaged ({error}); copy it again") from error

    def to_dict(self) -> dict[str, str]:
        return {"name": self.name, "signing": self.signing.hex(), "sealing": self.sealing.hex()}

    def verifies(self, text: bytes, signature: bytes) -> bool:
        """Whether this member signed the text."""
        lib = primitives()
        try:
            lib.Ed25519PublicKey.from_public_bytes(self.signing).verify(signature, text)
        except (lib.InvalidSignature, ValueError):
            return False
        return True

    def seal(self, text: bytes, context: bytes = b"") -> bytes:
        """Seal a text to this member: nobody else can open it, not even who sealed it."""
        private = os.urandom(KEY_BYTES)
        public = public_of(private)
        key = derive(agree(private, self.sealing), salt=public + self.sealing, info=_SEAL)
        return public + encrypt(key, text, context)


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
        primitives()
        return cls(name, os.urandom(KEY_BYTES), os.urandom(KEY_BYTES))

    @property
    def card(self) -> Card:
        """The public halves."""
        signing = primitives().Ed25519PrivateKey.from_private_bytes(self.signing)
        return Card(self.name, signing.public_key().public_bytes_raw(), public_of(self.sealing))

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    def sign(self, text: bytes) -> bytes:
        """An Ed25519 signature (RFC 8032)."""
        return primitives().Ed25519PrivateKey.from_private_bytes(self.signing).sign(text)

    def open(self, sealed: bytes, what: str, context: bytes = b"") -> bytes:
        """The text that was sealed to this member."""
        public, text = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
        if len(public) < KEY_BYTES:
            raise DataError(f"{what} is cut off; ask for it again")
        key = derive(agree(self.sealing, public), salt=public + public_of(self.sealing), info=_SEAL)
        return decrypt(key, text, context, what)

    def secret(self, purpose: bytes, salt: bytes) -> bytes:
        """A secret for one purpose: the same again for the same ``salt``, so that nothing has to be kept."""
        return derive(self.sealing, salt=salt, info=b"mixtune/1 " + purpose)

    def save(self, path: str | Path) -> Path:
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
    def load(cls, path: str | Path) -> Self:
        """Read a file of :meth:`save`."""
        path = Path(path)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] != _FORMAT:
                raise ValueError("it is of another kind")
            return cls(values["name"], bytes.fromhex(values["signing"]), bytes.fromhex(values["sealing"]))
        except OSError as error:
            raise DataError(f"the key {path} cannot be read: {error.strerror or error}; check the path") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a key of mixtune ({error}); pass the file that join wrote") from error


def key_path(folder: Path, name: str) -> Path:
    """The file of a member's key in the folder of the study: NAME.key, else the only key there is."""
    found = sorted(folder.glob("*.key"))
    if (own := folder / f"{name}.key") in found:
        return own
    if not found:
        raise DataError(f"there is no key in the folder of the study, {folder}; join it first, or pass the key (--key)")
    if len(found) > 1:
        raise DataError(f"there are {len(found)} keys in the folder of the study, {folder}; choose one (--key)")
    return found[0]
