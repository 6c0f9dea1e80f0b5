"""How a setting's text becomes a value, and the words that say which texts are legal."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"([0-9]{1,19})\s*([a-z]*)", re.IGNORECASE)
_FRACTION = re.compile(r"(0|1|[01]?\.[0-9]{1,6})")
_DOLLARS = re.compile(r"[0-9]{1,7}(\.[0-9]{1,12})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_HOST_NAME = re.compile(r"(?!.*\.\.)[a-zA-Z0-9_]([a-zA-Z0-9._-]{0,252}[a-zA-Z0-9_.])?")
_METADATA_PREFIX = re.compile(r"/[a-zA-Z0-9._/-]{0,248}[a-zA-Z0-9._-]")
_BUCKET = re.compile(r"((s3|gs|az)://)?[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]/?")
_KEY_SEGMENT = re.compile(r"(?![_.])[a-zA-Z0-9._-]{1,249}")
_KEY_PREFIX = re.compile(r"[a-zA-Z0-9-][a-zA-Z0-9._-]*(/[a-zA-Z0-9-][a-zA-Z0-9._-]*)*")
_CLIENT_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MAX_KEY_PREFIX = 249
_MOST_DOLLARS = 1_000_000
_SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class ExplainedValueError(ValueError):
    """A text that is not legal, with a message that says which part of it and why."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of value. `parse` raises `ValueError` for a text that is not `legal`.

    `schema` is JSON Schema for the value where it is not text but part of a document, such as a chart's values or
    a custom resource. It may take more than `parse` does, never less.
    """

    legal: str
    parse: Callable[[str], T]
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"}, compare=False)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port; port 0 asks the system for a free one. An IPv6 host stands without brackets."""

    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """True if the host stands for every address of the machine, which no client can connect to."""
        return is_wildcard(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_wildcard(host: str) -> bool:
    """True if `host` is `0.0.0.0` or `::` in any spelling."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def integer(low: int, high: int) -> Kind[int]:
    """A whole number in decimal digits from `low` to `high`."""

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError
        return _between(int(text), low, high)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Kind(f"a whole number from {low} to {high}", parse, schema)


def optional_integer(low: int, high: int) -> Kind[int | None]:
    """The same, for a setting that something else decides where it is not set."""
    kind = integer(low, high)
    return Kind(kind.legal, kind.parse, kind.schema)


def fraction() -> Kind[float]:
    """A share of a whole, above 0."""

    def parse(text: str) -> float:
        if not _FRACTION.fullmatch(text) or not 0 < float(text) <= 1:
            raise ValueError
        return float(text)

    schema = {"type": "number", "minimum": 0.000001, "maximum": 1}
    return Kind("a number above 0 and up to 1, such as 0.25", parse, schema)


def dollars() -> Kind[float]:
    """An amount of money; also as `3e-05`, which is how programs write a small number."""

    def parse(text: str) -> float:
        if not _DOLLARS.fullmatch(text) or float(text) > _MOST_DOLLARS:
            raise ValueError
        return float(text)

    schema = {"type": "number", "minimum": 0, "maximum": _MOST_DOLLARS}
    return Kind(f"dollars from 0 to {_MOST_DOLLARS:,}, such as 0.005", parse, schema)


def optional_dollars() -> Kind[float | None]:
    """The same, where there need be none."""
    kind = dollars()
    return Kind(kind.legal, kind.parse, kind.schema)


def size(low: int, high: int, note: str = "") -> Kind[int]:
    """A number of bytes from `low` to `high`; `note` explains a limit that may surprise."""

    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError
        return _between(int(match[1]) * _UNITS[match[2].lower()], low, high)

    return Kind(
        f"bytes (or with kB, MB, GB, KiB, MiB, GiB) from {size_text(low)} to {size_text(high)}{note}",
        parse,
        # A number has no limits here: where texts may stand too, Kubernetes takes none.
        {"type": ["integer", "string"], "pattern": r"^[0-9]{1,19}\s*([kKmMgG][iI]?)?[bB]?$"},
    )


def size_text(size_bytes: int) -> str:
    """A number of bytes in the largest binary unit that divides it."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def _between(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError
    return value


def boolean() -> Kind[bool]:
    """`true` or `false` in any case, as in Kafka's properties."""

    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    return Kind("true or false", parse, {"type": "boolean"})


def choice(options: type[E]) -> Kind[E]:
    """One of the enumeration's values, in any case."""
    schema = {"type": "string", "enum": [option.value for option in options]}
    return Kind("one of " + ", ".join(options), lambda text: options(text.lower()), schema)


def choices(options: type[E]) -> Kind[tuple[E, ...]]:
    """One or more of the enumeration's values, in any case, each once, in their order."""

    def parse(text: str) -> tuple[E, ...]:
        return tuple(dict.fromkeys(options(part.strip().lower()) for part in text.split(",")))

    return Kind(f"one or more of {', '.join(options)}, with commas between", parse)


def address() -> Kind[Address]:
    """`host:port`, `[IPv6 address]:port`, or `:port` for every IPv4 address of the machine."""

    def parse(text: str) -> Address:
        host, colon, port = text.rpartition(":")
        if not colon or not _INTEGER.fullmatch(port):
            raise ValueError
        if host.startswith("[") and host.endswith("]"):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif host:
            _check_host(host, allow_ipv6=False)
        return Address(host or "0.0.0.0", _between(int(port), 0, 65535))

    return Kind("host:port, [IPv6 address]:port or :port, the port from 0 (any free one) to 65535", parse)


def optional_address() -> Kind[Address | None]:
    """The same, where there need be none."""
    kind = address()
    return Kind(kind.legal, kind.parse, kind.schema)


def advertised_host() -> Kind[str | None]:
    """A host that clients can connect to."""

    def parse(text: str) -> str | None:
        host = text.removeprefix("[").removesuffix("]")
        _check_host(host, allow_ipv6=True)
        if is_wildcard(host):
            raise ValueError
        return host

    return Kind("a host name or an IP address that clients can reach, not 0.0.0.0 or ::", parse)


def _check_host(host: str, *, allow_ipv6: bool) -> None:
    if allow_ipv6 and ":" in host:
        ipaddress.IPv6Address(host)
    elif not _HOST_NAME.fullmatch(host):
        raise ValueError


def advertised_port() -> Kind[int | None]:
    """A port that clients can connect to."""
    port = integer(1, 65535)
    return Kind(port.legal, port.parse, port.schema)


def folder() -> Kind[Path]:
    """A folder's path; a relative one starts at the working directory."""

    def parse(text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError
        return Path(text)

    return Kind("a folder's path, which is created when missing", parse)


def file() -> Kind[Path | None]:
    """A file's path; whether it can be read is found out when it is."""

    def parse(value: str) -> Path | None:
        if not value or "\0" in value:
            raise ValueError
        return Path(value)

    return Kind("a file's path", parse)


def text(max_length: int = 4096) -> Kind[str | None]:
    """Printable characters."""

    def parse(value: str) -> str | None:
        if not 0 < len(value) <= max_length or not value.isprintable():
            raise ValueError
        return value

    schema = {"type": "string", "minLength": 1, "maxLength": max_length}
    return Kind(f"1 to {max_length} printable characters", parse, schema)


def http_url() -> Kind[str | None]:
    """The URL of a server, without a path."""

    def parse(value: str) -> str | None:
        scheme, _, rest = value.rstrip("/").partition("://")
        if scheme not in ("http", "https") or not rest:
            raise ValueError
        _check_host_and_port(rest, port_needed=False)
        return f"{scheme}://{rest}"

    return Kind("http://host:port or https://host:port", parse)


def endpoints() -> Kind[tuple[str, ...] | None]:
    """Servers as `http://host:port` or `https://host:port`; without a scheme `http`."""

    def parse(value: str) -> tuple[str, ...] | None:
        return tuple(_endpoint(part.strip()) for part in value.split(","))

    return Kind("host:port, http://host:port or https://host:port, several with commas between", parse)


def client_names() -> Kind[tuple[str, ...]]:
    """Names of client software as Kafka lets them be in ApiVersions (KIP-511), or `*`; there may be none."""

    def parse(value: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in value.split(",")) if value.strip() else ()
        if not all(name == "*" or _CLIENT_NAME.fullmatch(name) for name in names):
            raise ValueError
        return names

    return Kind("names of letters, digits, dots and hyphens, with commas between, or `*`", parse)


def texts() -> Kind[tuple[str, ...]]:
    """Printable texts with commas between; there may be none."""

    def parse(value: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in value.split(",")) if value.strip() else ()
        if not all(part and part.isprintable() for part in parts):
            raise ValueError
        return parts

    return Kind("texts with commas between, or nothing", parse)


def sasl_mechanisms() -> Kind[tuple[str, ...]]:
    """Mechanisms by their registered names, in any case; at least one."""

    def parse(value: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip().upper() for part in value.split(",")))
        if not all(part in _SASL_MECHANISMS for part in parts):
            raise ValueError
        return parts

    return Kind(f"one or more of {', '.join(_SASL_MECHANISMS)}, with commas between", parse)


def key_set() -> Kind[str | None]:
    """The place of a JSON Web Key Set."""

    def parse(value: str) -> str | None:
        scheme, separator, rest = value.partition("://")
        if (
            not separator
            or scheme not in ("http", "https", "file")
            or not value.isprintable()
            or " " in value
        ):
            raise ValueError
        if scheme == "file":
            if not rest.startswith("/"):
                raise ValueError
        else:
            host, _, _ = rest.partition("/")
            _check_host_and_port(host, port_needed=False)
        return value

    return Kind("https://host/path, http://host/path or file:///path", parse)


def _endpoint(value: str) -> str:
    scheme, separator, rest = value.rstrip("/").rpartition("://")
    if separator and scheme not in ("http", "https"):
        raise ValueError
    _check_host_and_port(rest, port_needed=True)
    return f"{scheme or 'http'}://{rest}"


def _check_host_and_port(value: str, *, port_needed: bool) -> None:
    host, colon, port = value.rpartition(":") if not value.endswith("]") else (value, "", "")
    if not colon and not host:
        host = value
    if port_needed and not colon:
        raise ValueError
    if colon:
        if not _INTEGER.fullmatch(port):
            raise ValueError
        _between(int(port), 1, 65535)
    if host.startswith("[") and host.endswith("]"):
        ipaddress.IPv6Address(host[1:-1])
    else:
        _check_host(host, allow_ipv6=False)


def metadata_prefix() -> Kind[str | None]:
    """Segments of a key with `/` between them; it starts with one and ends without."""

    def parse(value: str) -> str | None:
        if not _METADATA_PREFIX.fullmatch(value):
            raise ValueError
        return value

    return Kind("/ and then 1 to 249 of a-z A-Z 0-9 . _ - and /, not ending with /", parse)


def key_prefix() -> Kind[str]:
    """Segments of an object key with `/` between them."""

    def parse(value: str) -> str:
        if len(value) > _MAX_KEY_PREFIX or not _KEY_PREFIX.fullmatch(value):
            raise ValueError
        return value

    return Kind("1 to 249 of a-z A-Z 0-9 . _ - and /, no segment empty or starting with _ or .", parse)


def bucket() -> Kind[str | None]:
    """A bucket's name, or a URL that says whose bucket it is."""

    def parse(value: str) -> str | None:
        if not _BUCKET.fullmatch(value):
            raise ValueError
        return value.rstrip("/")

    return Kind("a bucket's name, or s3://name, gs://name or az://container", parse)


def key_segment() -> Kind[str]:
    """One segment of an object key, outside `_kafscale/` and a local store's dot-folders."""

    def parse(text: str) -> str:
        if not _KEY_SEGMENT.fullmatch(text):
            raise ValueError
        return text

    schema = {"type": "string", "pattern": "^[a-zA-Z0-9-][a-zA-Z0-9._-]{0,248}$"}
    return Kind("1 to 249 of a-z A-Z 0-9 . _ -, not starting with _ or .", parse, schema)
