"""Message classes by API key, kafka-python's and those that it lacks, and what their schemas say about versions."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.protocol.api_message import ApiMessage

from kafscale.protocol import consumer_group_messages, share_group_messages

MessageClass = Any
"""A kafka-python `ApiMessage` class; the package has no type stubs."""

_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
    consumer_group_messages,
    share_group_messages,
)


def _classes(suffix: str) -> Iterator[tuple[int, MessageClass]]:
    for module in _MODULES:
        for name in module.__all__:
            message_class = getattr(module, name)
            if name.endswith(suffix) and issubclass(message_class, ApiMessage):
                yield message_class.API_KEY, message_class


REQUEST_CLASSES: Final[Mapping[int, MessageClass]] = MappingProxyType(dict(_classes("Request")))
RESPONSE_CLASSES: Final[Mapping[int, MessageClass]] = MappingProxyType(dict(_classes("Response")))

_NEVER_FLEXIBLE = 1 << 15


def _first_flexible_version(message_class: MessageClass) -> int:
    versions = range(message_class.max_version + 1)
    return next(
        (version for version in versions if message_class.flexible_version_q(version)), _NEVER_FLEXIBLE
    )


_FLEXIBLE_FROM = {key: _first_flexible_version(message) for key, message in REQUEST_CLASSES.items()}


def is_flexible(api_key: int, api_version: int) -> bool:
    """True if messages of this API and version use compact types and tagged fields (KIP-482).

    False for an API that kafka-python does not know. Versions past the known ones stay flexible.
    """
    return api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER_FLEXIBLE)
