"""The server's side of PLAIN (RFC 4616), whose passwords are checked against stored SCRAM credentials."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafscale.formats.user_record import MAX_NAME_CHARACTERS, ScramCredential, ScramMechanism
from kafscale.security.password_checks import PasswordChecks
from kafscale.security.sasl import Authenticated, AuthenticationError
from kafscale.security.scram import Decoys, is_password_of

WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"
"""Kafka's text, the same for an unknown user."""

Credentials = Callable[[str], Mapping[ScramMechanism, ScramCredential]]
"""All credentials of a user; none for an unknown one."""


@dataclass(frozen=True, slots=True)
class PlainLogin:
    """A name and a password, in UTF-8."""

    name: str
    password: bytes = field(repr=False)


def parse_plain(token: bytes) -> PlainLogin:
    """The only message of a client: `[authzid] NUL name NUL password`. Raises `AuthenticationError`."""
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        raise AuthenticationError("the client's message is not an authorization id, a name and a password")
    authorization_id, name, password = parts
    try:
        login = PlainLogin(name.decode(), password)
        password.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("the client's message is not UTF-8") from None
    if not name or not password:
        raise AuthenticationError("the client's message has no name, or no password")
    if len(login.name) > MAX_NAME_CHARACTERS:
        raise AuthenticationError("the user's name is too long")
    if authorization_id and authorization_id != name:
        raise AuthenticationError(
            "the client asks for an authorization id that is not its user",
            "Authentication failed: Client requested an authorization id that is different from username",
        )
    return login


class PlainExchange:
    """See `Exchange`. An unknown user costs as much time as a wrong password."""

    def __init__(
        self, credentials: Credentials, decoys: Decoys, checks: PasswordChecks, address: str
    ) -> None:
        """`address`: the client's, for its turns."""
        self._credentials = credentials
        self._decoys = decoys
        self._checks = checks
        self._address = address

    async def respond(self, token: bytes) -> Authenticated:
        """See `Exchange`."""
        login = parse_plain(token)
        found = self._credentials(login.name)
        # Of several credentials the first: an administrator gives them the same password.
        mechanism = min(found, default=ScramMechanism.SCRAM_SHA_256)
        credential = found.get(mechanism) or self._decoys.credential(mechanism, login.name)
        check = partial(is_password_of, credential, mechanism, login.password)
        if not await self._checks.run(self._address, check) or not found:
            raise AuthenticationError("wrong password" if found else "unknown user", WRONG_PASSWORD)
        return Authenticated(b"", login.name)
