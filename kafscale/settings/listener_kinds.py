"""How lists of listeners become values: `NAME://host:port`, and the map from names to protocols."""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.settings.kinds import Address, ExplainedValueError, Kind, address, is_wildcard

MOST_LISTENERS: Final = 32
MOST_ADDRESSES: Final = 1_000


@dataclass(frozen=True, slots=True)
class NamedAddress:
    """One entry of a list of listeners."""

    name: ListenerName
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


@dataclass(frozen=True, slots=True)
class ProtocolMap:
    """The security protocol of each listener's name."""

    pairs: tuple[tuple[ListenerName, SecurityProtocol], ...]

    def of(self, name: ListenerName) -> SecurityProtocol | None:
        """None for a name that is not there."""
        return next((protocol for known, protocol in self.pairs if known == name), None)

    def __str__(self) -> str:
        return ",".join(f"{name}:{protocol}" for name, protocol in self.pairs)


def listener_list() -> Kind[tuple[NamedAddress, ...] | None]:
    """Where to listen; no host for every IPv4 address of the machine, port 0 for any free one."""
    legal = "NAME://host:port, several with commas between, each with a name and a port of its own"

    def parse(text: str) -> tuple[NamedAddress, ...] | None:
        entries = _entries(text)
        _check_ports(entries)
        return entries

    return Kind(legal, parse)


def advertised_list() -> Kind[tuple[NamedAddress, ...] | None]:
    """Where clients connect: each host one that they can reach."""
    legal = "NAME://host:port, several with commas between, each name once, no host 0.0.0.0 or ::, no port 0"

    def parse(text: str) -> tuple[NamedAddress, ...] | None:
        entries = _entries(text, needs_host=True)
        for entry in entries:
            if is_wildcard(entry.address.host) or not entry.address.port:
                raise ExplainedValueError(f"{entry} is nothing that a client can connect to")
        return entries

    return Kind(legal, parse)


def protocol_map() -> Kind[ProtocolMap]:
    """The security protocol of each listener's name, as Kafka's `listener.security.protocol.map`."""

    def parse(text: str) -> ProtocolMap:
        found: dict[ListenerName, SecurityProtocol] = {}
        for part in _parts(text):
            name_text, colon, protocol = part.rpartition(":")
            if not colon or protocol.strip().upper() not in list(SecurityProtocol):
                raise ExplainedValueError(f"{part[:80]!r} names no protocol: legal are {_PROTOCOLS}")
            name = _name(name_text)
            if name in found:
                raise ExplainedValueError(f"the name {name} stands there twice")
            found[name] = SecurityProtocol(protocol.strip().upper())
        return ProtocolMap(tuple(found.items()))

    return Kind(f"NAME:PROTOCOL, several with commas between, each PROTOCOL one of {_PROTOCOLS}", parse)


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """A number for each of some addresses, which are in one spelling."""

    pairs: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ",".join(f"{address}:{limit}" for address, limit in self.pairs)


def address_limits(high: int) -> Kind[AddressLimits]:
    """Numbers from 0 to `high` by address, as Kafka's `max.connections.per.ip.overrides`, but no host names."""

    def parse(text: str) -> AddressLimits:
        found: dict[str, int] = {}
        for part in _parts(text, MOST_ADDRESSES) if text.strip() else ():
            address_text, colon, number = part.rpartition(":")
            try:
                one = str(ipaddress.ip_address(address_text.strip()))
            except ValueError:
                raise ExplainedValueError(
                    f"{part[:80]!r} names no address: host names are not resolved"
                ) from None
            if not colon or not number.strip().isdecimal() or len(number) > 10 or int(number) > high:
                raise ExplainedValueError(f"{part[:80]!r} has no number from 0 to {high}")
            if one in found:
                raise ExplainedValueError(f"the address {one} stands there twice")
            found[one] = int(number)
        return AddressLimits(tuple(found.items()))

    return Kind(f"ADDRESS:NUMBER, several with commas between, each NUMBER from 0 to {high}", parse)


class ClientAuth(StrEnum):
    """The demand that clients of an SSL listener show a certificate, as Kafka's `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(StrEnum):
    """The versions of TLS that are served, under Java's names."""

    V1_2 = "TLSv1.2"
    V1_3 = "TLSv1.3"


def tls_versions() -> Kind[tuple[TlsVersion, ...]]:
    """One or both versions."""

    def parse(text: str) -> tuple[TlsVersion, ...]:
        asked = {part.lower() for part in _parts(text)}
        found = tuple(version for version in TlsVersion if version.lower() in asked)
        if len(found) != len(asked):
            raise ValueError
        return found

    return Kind("TLSv1.2, TLSv1.3 or both with a comma between", parse)


_PROTOCOLS: Final = ", ".join(SecurityProtocol)
_ENTRY: Final = re.compile(r"([^:/]*)://(.*)")
_ADDRESS: Final = address()


def _entries(text: str, *, needs_host: bool = False) -> tuple[NamedAddress, ...]:
    found: dict[ListenerName, NamedAddress] = {}
    for part in _parts(text):
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise ExplainedValueError(f"{part[:80]!r} is not NAME://host:port")
        name = _name(match[1])
        try:
            where = _ADDRESS.parse(match[2])
        except ValueError:
            raise ExplainedValueError(f"{match[2][:80]!r} is not {_ADDRESS.legal}") from None
        if needs_host and match[2].startswith(":"):
            raise ExplainedValueError(f"{part[:80]!r} has no host")
        if name in found:
            raise ExplainedValueError(
                f"each listener must have a different name, and {name} stands there twice"
            )
        found[name] = NamedAddress(name, where)
    return tuple(found.values())


def _parts(text: str, most: int = MOST_LISTENERS) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ExplainedValueError("an entry is empty")
    if len(parts) > most:
        raise ExplainedValueError(f"there are more than {most}")
    return parts


def _name(text: str) -> ListenerName:
    try:
        return ListenerName.parse(text)
    except ValueError as problem:
        raise ExplainedValueError(str(problem)) from None


def _check_ports(entries: tuple[NamedAddress, ...]) -> None:
    """As in Kafka: a port once, or once for an IPv4 and once for an IPv6 address; port 0 any number of times."""
    versions: dict[int, list[int]] = {}
    for entry in entries:
        if entry.address.port:
            versions.setdefault(entry.address.port, []).append(_ip_version(entry.address.host))
    for port, found in versions.items():
        if len(found) > 1 and sorted(found) != [4, 6]:
            raise ExplainedValueError(
                f"each listener must have a different port, and {port} stands there {len(found)} times; only one "
                "with an IPv4 and one with an IPv6 address may share a port"
            )


def _ip_version(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0
