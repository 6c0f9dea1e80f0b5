"""`kafscale serve` whose local store delays GETs like a distant one: `python -m bench.slow_broker GET_MS [PUT_MS]`.

The settings come from the environment. KAFSCALE_S3_CONCURRENCY limits the GETs in flight, as for a bucket.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kafscale.broker.app import run
from kafscale.objects.local import store as local
from kafscale.ops.logs import configure_logging
from kafscale.protocol.types import Buffer
from kafscale.settings.broker import load_settings

T = TypeVar("T")


def slow_store(get_sec: float, concurrency: int, put_sec: float = 0.0) -> type[local.LocalStore]:
    """A local store of which every GET takes `get_sec` longer, every PUT `put_sec`; `concurrency` at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def late(call: Callable[[], Awaitable[T]], seconds: float = get_sec) -> T:
        async with slots:
            await asyncio.sleep(seconds)
            return await call()

    class SlowStore(local.LocalStore):
        async def get(self, key: str) -> bytes:
            return await late(lambda: super(SlowStore, self).get(key))

        async def get_range(self, key: str, start: int, length: int) -> bytes:
            return await late(lambda: super(SlowStore, self).get_range(key, start, length))

        async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
            return await late(lambda: super(SlowStore, self).read_into(key, start, length, targets))

        async def size_bytes(self, key: str) -> int:
            return await late(lambda: super(SlowStore, self).size_bytes(key))

        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            await late(lambda: super(SlowStore, self).put(key, parts), put_sec)

        async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
            await late(lambda: super(SlowStore, self).put_if_absent(key, parts), put_sec)

    return SlowStore


def main() -> int:
    """Serve until stopped; returns the exit status."""
    settings = load_settings(os.environ)
    configure_logging(settings.log_level, settings.log_format)
    # The broker opens its stores itself; this replaces the class that it uses.
    get_sec, put_sec = (float(one) / 1000 for one in (*sys.argv[1:], "0")[:2])
    slow = slow_store(get_sec, settings.s3_concurrency, put_sec)
    local.LocalStore = slow  # type: ignore[misc]
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
