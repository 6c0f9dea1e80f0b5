"""Who a client is: Kafka's principals (KIP-11)."""

from dataclasses import dataclass

USER = "User"
"""The kind of every principal that authentication gives."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name, in Kafka's text form `User:alice`. `name` is a client's text: cut it before it is logged."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""A client of a listener without authentication, as in Kafka."""


def parse_principal(text: str) -> Principal:
    """The inverse of `str`. A name may contain colons. Raises `ValueError`."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text[:80]!r} is no principal: it must be a kind and a name, as in User:alice")
    return Principal(kind, name)
