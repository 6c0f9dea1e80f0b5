"""Keys of SCRAM (RFC 5802, RFC 7677): from a password to what is stored, and back to a check. Pure.

Passwords and names are taken as they are, in UTF-8, as in Kafka: without SASLprep.
"""

import hashlib
import hmac
import secrets
import string
from typing import Final

from kafscale.formats.user_record import MIN_ITERATIONS, ScramCredential, ScramMechanism

DEFAULT_ITERATIONS: Final = MIN_ITERATIONS

_SALT_DIGITS: Final = string.digits + string.ascii_lowercase
_SALT_BITS: Final = 130


def new_salt() -> bytes:
    """A random salt, made as Kafka's admin client makes one."""
    return _salt_of(secrets.randbits(_SALT_BITS))


def _salt_of(number: int) -> bytes:
    """A number of 130 bits in base 36, as Java writes it: 25 or 26 characters, seldom fewer."""
    characters: list[str] = []
    while number or not characters:
        number, digit = divmod(number, len(_SALT_DIGITS))
        characters.append(_SALT_DIGITS[digit])
    return "".join(reversed(characters)).encode()


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """`Hi(password, salt, i)`: takes milliseconds of CPU, without the interpreter's lock."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(
    mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential that is stored for a password. Takes milliseconds of CPU."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential that is stored for a salted password, which Kafka's admin client sends."""
    return ScramCredential(
        iterations=iterations,
        salt=salt,
        stored_key=digest(mechanism, keyed_hash(mechanism, salted, b"Client Key")),
        server_key=keyed_hash(mechanism, salted, b"Server Key"),
    )


def is_password_of(credential: ScramCredential, mechanism: ScramMechanism, password: bytes) -> bool:
    """True if the credential is that of the password. Takes milliseconds of CPU."""
    tried = credential_of(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(tried.stored_key, credential.stored_key)


def keyed_hash(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    """`HMAC(key, data)`."""
    return hmac.digest(key, data, mechanism.hash_name)


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    """`H(data)`."""
    return hashlib.new(mechanism.hash_name, data).digest()


class Decoys:
    """Credentials of users that do not exist, so that an untrusted client cannot tell them from those that do.

    The same name has the same salt on every broker of a cluster. No password matches.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret`: the same on every broker of the cluster, and unknown to untrusted clients."""
        self._secret = secret

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """The credential of an unknown user, in the form of `new_salt` and with the default iterations."""
        seed = hmac.digest(self._secret, name.encode("utf-8", "replace"), mechanism.hash_name)
        salt = _salt_of(int.from_bytes(seed) >> 8 * len(seed) - _SALT_BITS)
        unknown = secrets.token_bytes(mechanism.hash_bytes)
        return ScramCredential(
            iterations=DEFAULT_ITERATIONS, salt=salt, stored_key=unknown, server_key=unknown
        )
