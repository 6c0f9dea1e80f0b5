"""Names and security protocols of listeners, as Kafka has them (KIP-103)."""

import re
from enum import StrEnum
from typing import ClassVar, Final

LISTENER_NAME: Final = re.compile(r"[A-Z0-9_]([A-Z0-9_.-]{0,62}[A-Z0-9_])?")
"""Legal names in upper case; Kafka takes any text, but a name stands in URLs, settings and stored records."""


class SecurityProtocol(StrEnum):
    """How the bytes of a connection travel, and if its client authenticates itself by SASL."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        """True if the connection begins with a TLS handshake."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """True if the client must authenticate itself by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerName(str):
    """The name of a listener, in upper case: which of a broker's addresses a client came to."""

    __slots__ = ()

    PLAINTEXT: ClassVar["ListenerName"]
    EXTERNAL: ClassVar["ListenerName"]

    @classmethod
    def parse(cls, text: str) -> "ListenerName":
        """The name in upper case, as Kafka compares it. Raises `ValueError` for a text that is no name."""
        name = text.strip().upper()
        if not LISTENER_NAME.fullmatch(name):
            raise ValueError(
                f"{text[:80]!r} is no listener name: legal are 1 to 64 of A-Z a-z 0-9 _ - and ., "
                "neither the first nor the last being - or ."
            )
        return cls(name)


ListenerName.PLAINTEXT = ListenerName("PLAINTEXT")
ListenerName.EXTERNAL = ListenerName("EXTERNAL")
