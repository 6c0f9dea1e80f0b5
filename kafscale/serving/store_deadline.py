"""The deadline of requests that wait for a store and have none of their own."""

import asyncio
from types import TracebackType

from kafscale.errors import StoreUnavailableError

# Less than the least patient client: franz-go gives a request 10 s, Java, Sarama and kafka-python 30 s, librdkafka
# 60 s, and then they close the connection.
STORE_DEADLINE_SEC = 8.0


class StoreDeadline:
    """Cancels its block after `STORE_DEADLINE_SEC`, and raises `StoreUnavailableError` then.

    A class, and no generator: each heartbeat has one.
    """

    __slots__ = ("_timeout",)

    def __init__(self) -> None:
        self._timeout = asyncio.timeout(STORE_DEADLINE_SEC)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise _late() from late
        if isinstance(error, TimeoutError):
            raise _late() from error


def store_deadline() -> StoreDeadline:
    """The deadline of a block that begins now."""
    return StoreDeadline()


def _late() -> StoreUnavailableError:
    return StoreUnavailableError(f"no answer from the store within {STORE_DEADLINE_SEC:g} s")
