"""DescribeConfigs responses (API 32), versions 1 to 4, by hand: what is the same for many resources is encoded once.

v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569). v4: flexible.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafscale.protocol.wire import (
    array_count,
    compact_string,
    nullable_compact_string,
    nullable_string,
    string,
    uvarint,
)

MIN_VERSION: Final = 1
MAX_VERSION: Final = 4

_FIRST_VERSION_WITH_TYPES = 3
_FIRST_FLEXIBLE_VERSION = 4
_INT16 = struct.Struct(">h")
_INT8 = struct.Struct(">b")
_FRAME_START = struct.Struct(">ii")
_THROTTLE_TIME = struct.Struct(">i")
_FLAGS_OF_CONFIG = struct.Struct(">?b?")
_NO_TAGS = b"\x00"


class DescribedSynonym(NamedTuple):
    """One of the places that a value may come from."""

    name: str
    value: str | None
    source: int


class DescribedConfig(NamedTuple):
    """One config of a resource. `documentation` is None where it was not asked for."""

    name: str
    value: str | None
    read_only: bool
    source: int
    synonyms: Sequence[DescribedSynonym]
    config_type: int
    documentation: str | None


def encode_config(config: DescribedConfig, version: int) -> bytes:
    """Encode a config as a response of this version holds it."""
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    parts = [
        _string(config.name, flexible),
        _nullable_string(config.value, flexible),
        _FLAGS_OF_CONFIG.pack(config.read_only, config.source, False),
        _count(len(config.synonyms), flexible),
    ]
    for synonym in config.synonyms:
        parts += (_string(synonym.name, flexible), _nullable_string(synonym.value, flexible))
        parts.append(_INT8.pack(synonym.source))
        if flexible:
            parts.append(_NO_TAGS)
    if version >= _FIRST_VERSION_WITH_TYPES:
        parts += (_INT8.pack(config.config_type), _nullable_string(config.documentation, flexible))
    if flexible:
        parts.append(_NO_TAGS)
    return b"".join(parts)


def encode_result(
    version: int,
    error_code: int,
    error_message: str | None,
    resource_type: int,
    resource_name: str,
    configs: Sequence[bytes] = (),
) -> bytes:
    """Encode what is said of one resource. `configs`: each from `encode_config`.

    Raises `struct.error` when a value does not fit its field.
    """
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    return b"".join(
        (
            _INT16.pack(error_code),
            _nullable_string(error_message, flexible),
            _INT8.pack(resource_type),
            _string(resource_name, flexible),
            _count(len(configs), flexible),
            *configs,
            _NO_TAGS if flexible else b"",
        )
    )


def encode_describe_configs_response(correlation_id: int, version: int, results: Sequence[bytes]) -> bytes:
    """Encode a whole response frame: 4-byte length, header, body. `results`: each from `encode_result`."""
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    tags = _NO_TAGS if flexible else b""
    start = tags + _THROTTLE_TIME.pack(0) + _count(len(results), flexible)
    size_bytes = 4 + len(start) + sum(map(len, results)) + len(tags)
    return b"".join((_FRAME_START.pack(size_bytes, correlation_id), start, *results, tags))


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else array_count(count)


def _string(text: str, flexible: bool) -> bytes:
    return compact_string(text) if flexible else string(text)


def _nullable_string(text: str | None, flexible: bool) -> bytes:
    return nullable_compact_string(text) if flexible else nullable_string(text)
