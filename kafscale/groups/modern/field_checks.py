"""Checks of fields that the heartbeats of consumer groups and of share groups have: Kafka's, and our limits."""

from collections.abc import Collection
from typing import Final

from kafscale.protocol.error_codes import ErrorCode, KafkaError

MAX_SUBSCRIBED_TOPICS: Final = 10_000
"""Topics that one member may name."""

MAX_SUBSCRIPTION_BYTES: Final = 512 * 1024
"""Their names together: a member's record has to fit a request to etcd."""


def check_subscription(names: Collection[str], advice: str = "") -> None:
    """Raises `KafkaError` INVALID_REQUEST for more than one member may name. `advice`: the end of the message."""
    if len(names) > MAX_SUBSCRIBED_TOPICS:
        raise invalid(
            f"SubscribedTopicNames has {len(names)} topics, at most {MAX_SUBSCRIBED_TOPICS} are allowed{advice}."
        )
    size_bytes = sum(len(name.encode()) for name in names)
    if size_bytes > MAX_SUBSCRIPTION_BYTES:
        raise invalid(
            f"SubscribedTopicNames has {size_bytes} bytes, at most {MAX_SUBSCRIPTION_BYTES} are allowed{advice}."
        )


def check_not_blank(field: str, text: str | None) -> None:
    """Raises `KafkaError` INVALID_REQUEST for a text that is there and says nothing."""
    if text is not None and not text.strip():
        raise invalid(f"{field} can't be empty.")


def invalid(problem: str) -> KafkaError:
    """INVALID_REQUEST."""
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)
