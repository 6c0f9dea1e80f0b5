"""The common part of SASL's mechanisms: an exchange of tokens that ends with a name or with a failure."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kafscale.errors import KafscaleError

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Challenge:
    """A token for the client, who sends another one."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The end of an exchange. `token`: the last one for the client, who is the user `name`.

    `expires_ms`: when the credential expires, Unix milliseconds; None for one that does not.
    """

    token: bytes
    name: str
    expires_ms: int | None = None


Step = Challenge | Authenticated


class AuthenticationError(KafscaleError):
    """The client has not shown that it is who it says. `reason` is for the log, and has no secret in it.

    `answer`: the text for the client where it is not the one of every failure of the mechanism.
    """

    def __init__(self, reason: str, answer: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer


class BusyError(KafscaleError):
    """The broker has too many logins to check: the client may try again later."""


class Exchange(Protocol):
    """One client's exchange by one mechanism. Not to be used after its end or an error."""

    def respond(self, token: bytes) -> Step | Awaitable[Step]:
        """The answer to a client's token.

        Raises `AuthenticationError`, and `BusyError` if it cannot be checked now.
        """


ExchangeFactory = Callable[[str], Exchange]
"""Begins an exchange with a client, given its address as text."""

Mechanisms = Mapping[str, ExchangeFactory]
"""The mechanisms of a listener, by name."""
