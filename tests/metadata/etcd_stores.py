"""Stores on etcd: with patience, and with short timeouts for tests of what goes wrong."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from kafscale.errors import StoreError
from kafscale.metadata.etcd.config import EtcdConfig, EtcdTimeouts
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.store import Put
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES
from tests.support.waiting import PATIENCE_SEC

T = TypeVar("T")

# No call fails because a machine is busy: a broker's five seconds have been too few beside a load of ten.
PATIENT = EtcdTimeouts(call_sec=PATIENCE_SEC, attempt_sec=PATIENCE_SEC / 4, connect_sec=PATIENCE_SEC / 4)

# For tests that wait until calls have failed.
QUICK = EtcdTimeouts(
    call_sec=1.5, attempt_sec=0.5, connect_sec=0.5, first_pause_sec=0.02, longest_pause_sec=0.2
)


@asynccontextmanager
async def etcd_store(
    *endpoints: str,
    prefix: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    timeouts: EtcdTimeouts = PATIENT,
    max_backlog_bytes: int = MAX_BACKLOG_BYTES,
) -> AsyncIterator[EtcdStore]:
    """A store below a prefix of its own, closed at the end."""
    config = EtcdConfig(
        endpoints=endpoints,
        prefix=prefix or f"/tests/{uuid.uuid4().hex}",
        username=username,
        password=password,
        ca=ca,
        cert=cert,
        key=key,
    )
    store = await EtcdStore.open(config, timeouts=timeouts, max_backlog_bytes=max_backlog_bytes)
    try:
        yield store
    finally:
        await store.close()


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """The answer to a caller that tries again, whatever the outcome of the attempt before."""
    async with asyncio.timeout(PATIENCE_SEC):
        while True:
            try:
                return await call()
            except StoreError:
                await asyncio.sleep(0.02)


async def put(store: EtcdStore, key: str, value: bytes = b"value") -> int:
    """The revision of the put."""
    result = await store.transact([], [Put(key, value)])
    return result.revision
