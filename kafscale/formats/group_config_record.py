"""Configs of a group: stored bytes and values. Stored format: docs/format/metadata.md, "Configs of groups".

Which configs a group may have is decided in `kafscale/cluster/group_configs.py`.
"""

from collections.abc import Mapping

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_fields, encode_fields


def encode_group_configs(configs: Mapping[str, str]) -> bytes:
    """The stored bytes. A group without configs has no record."""
    return encode_fields({"configs": dict(sorted(configs.items()))})


def decode_group_configs(key: str, data: bytes) -> Mapping[str, str]:
    """The configs, by Kafka's names; one that this release does not know stays, for the one that wrote it.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    configs = decode_fields(key, data).get("configs")
    if not isinstance(configs, dict) or not configs:
        raise CorruptDataError(key, f"'configs' is {str(configs)[:80]!r}, not an object with a config")
    for name, value in configs.items():
        if not isinstance(value, str):
            raise CorruptDataError(key, f"config {name[:80]!r} is {str(value)[:80]!r}, not a text")
    return configs
