"""Partitions that a request creates or deletes, counted against its client's quota (KIP-599)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.context import RequestContext

NEVER_STRICT: Final = 1 << 15
"""For what a client does not ask for by itself, such as topics that are created when they are named."""


@contextmanager
def counted_mutations(request: RequestContext, partition_count: int, strict_since: int) -> Iterator[None]:
    """Count so many partitions before the block; they do not count if it is refused.

    From version `strict_since` on raises `KafkaError` THROTTLING_QUOTA_EXCEEDED while the quota is used up. In
    earlier versions, which do not know the error, the client has to wait after its reply.
    """
    throttle = request.throttle
    if throttle is None:
        yield
        return
    throttle.mutate(partition_count, is_strict=request.api_version >= strict_since)
    try:
        yield
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.REQUEST_TIMED_OUT:  # It may still be done.
            throttle.take_back(partition_count)
        raise
