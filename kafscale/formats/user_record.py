"""A user's SCRAM credentials: values and stored bytes. Never a password.

Stored format: docs/format/metadata.md. One JSON object for each user; RFC 5802 has the meaning of its parts.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.metadata import keys

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""As in Kafka: fewer are too cheap to try, more are too expensive for a broker that has to."""

MIN_SALT_BYTES: Final = 1
MAX_SALT_BYTES: Final = 1024
MAX_NAME_CHARACTERS: Final = 1024


class ScramMechanism(IntEnum):
    """SCRAM by hash, with the numbers that Kafka's admin requests have."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The mechanism's name in a handshake, such as `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash's name for `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def hash_bytes(self) -> int:
        """The size of a hash, hence of every key."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


MECHANISMS_BY_NAME: Final[Mapping[str, ScramMechanism]] = {one.sasl_name: one for one in ScramMechanism}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """A broker's knowledge of a password: enough to check it, not to log in elsewhere with it.

    `stored_key` and `server_key` are as long as the mechanism's hash. They appear in no `repr`: with `server_key`
    anyone could pose as the broker, and with all parts try passwords offline.
    """

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user's credentials by mechanism; at least one."""

    name: str
    scram: Mapping[ScramMechanism, ScramCredential]


def encode_user_record(record: UserRecord) -> bytes:
    """The user's stored bytes."""
    return encode_fields(
        {
            "scram": {
                mechanism.sasl_name: {
                    "iterations": credential.iterations,
                    "salt": b64encode(credential.salt).decode(),
                    "stored_key": b64encode(credential.stored_key).decode(),
                    "server_key": b64encode(credential.server_key).decode(),
                }
                for mechanism, credential in sorted(record.scram.items())
            }
        }
    )


def decode_user_record(key: str, data: bytes) -> UserRecord:
    """The user of the record at `key`. Raises `CorruptDataError`, `UnknownFormatVersionError`; neither quotes keys.

    A mechanism that this release does not know is left out.
    """
    found = decode_fields(key, data).get("scram")
    if not isinstance(found, dict):
        raise CorruptDataError(key, "'scram' is not a JSON object")
    scram = {
        MECHANISMS_BY_NAME[name]: _credential(key, MECHANISMS_BY_NAME[name], parts)
        for name, parts in found.items()
        if name in MECHANISMS_BY_NAME
    }
    return UserRecord(keys.user_name(key), scram)


def _credential(key: str, mechanism: ScramMechanism, parts: Any) -> ScramCredential:
    if not isinstance(parts, dict):
        raise CorruptDataError(key, f"{mechanism.sasl_name!r} is not a JSON object")
    iterations = parts.get("iterations")
    if (
        not isinstance(iterations, int)
        or isinstance(iterations, bool)
        or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS
    ):
        raise CorruptDataError(
            key,
            f"'iterations' of {mechanism.sasl_name} is not a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}",
        )
    size = mechanism.hash_bytes
    return ScramCredential(
        iterations=iterations,
        salt=_bytes(key, parts, "salt", MIN_SALT_BYTES, MAX_SALT_BYTES),
        stored_key=_bytes(key, parts, "stored_key", size, size),
        server_key=_bytes(key, parts, "server_key", size, size),
    )


def _bytes(key: str, parts: Mapping[str, Any], name: str, least: int, most: int) -> bytes:
    text = parts.get(name)
    try:
        value = b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        value = b""
    if not least <= len(value) <= most:
        legal = f"{least}" if least == most else f"{least} to {most}"
        raise CorruptDataError(key, f"{name!r} is not {legal} bytes in base64")
    return value
