"""Stores on etcd with short timeouts, for tests of what goes wrong."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafscale.metadata.etcd_config import EtcdConfig, EtcdTimeouts
from kafscale.metadata.etcd_store import EtcdStore
from kafscale.metadata.store import Put
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES

# Whatever is not answered in these has not been answered by something that runs on this machine.
QUICK = EtcdTimeouts(
    call_sec=3.0, attempt_sec=1.0, connect_sec=1.0, first_pause_sec=0.02, longest_pause_sec=0.2
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
    timeouts: EtcdTimeouts = QUICK,
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


async def put(store: EtcdStore, key: str, value: bytes = b"value") -> int:
    """The revision of the put."""
    result = await store.transact([], [Put(key, value)])
    return result.revision
