"""The deadline of requests that wait for a store and have none of their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.errors import StoreUnavailableError

# Less than the least patient client: franz-go gives a request 10 s, Java, Sarama and kafka-python 30 s, librdkafka
# 60 s, and then they close the connection.
STORE_DEADLINE_SEC = 8.0


@asynccontextmanager
async def store_deadline() -> AsyncIterator[None]:
    """Cancels its block after `STORE_DEADLINE_SEC`, and raises `StoreUnavailableError` then."""
    try:
        async with asyncio.timeout(STORE_DEADLINE_SEC):
            yield
    except TimeoutError as late:
        raise StoreUnavailableError(f"no answer from the store within {STORE_DEADLINE_SEC:g} s") from late
