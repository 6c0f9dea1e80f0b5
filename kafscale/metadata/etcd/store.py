"""The metadata store of a cluster: etcd."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from aetcd import rpc

from kafscale.errors import LeaseEndedError, StartupError, StoreError
from kafscale.metadata.etcd.calls import EtcdCalls, Repeat
from kafscale.metadata.etcd.codec import EtcdCodec
from kafscale.metadata.etcd.config import DEFAULT_TIMEOUTS, EtcdConfig, EtcdTimeouts
from kafscale.metadata.etcd.connection import EtcdConnection, EtcdRefusedError
from kafscale.metadata.etcd.endpoints import EtcdEndpoints
from kafscale.metadata.etcd.leases import EtcdLeases
from kafscale.metadata.etcd.reader import EtcdReader
from kafscale.metadata.etcd.tls_check import tls_refusal
from kafscale.metadata.etcd.verdict import LEASE_NOT_FOUND
from kafscale.metadata.etcd.watcher import EtcdWatcher
from kafscale.metadata.etcd.watches import EtcdWatches
from kafscale.metadata.request_rules import MAX_OPERATIONS, check_transaction, check_ttl
from kafscale.metadata.store import (
    NO_LEASE,
    Changes,
    Compare,
    KeyValue,
    Operation,
    Put,
    Snapshot,
    TransactionResult,
)
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES

logger = logging.getLogger(__name__)


class EtcdStore:
    """A `MetadataStore` in etcd. Use `open`; everything belongs to the event loop that called it."""

    def __init__(self, config: EtcdConfig, timeouts: EtcdTimeouts, max_backlog_bytes: int) -> None:
        randomness = random.Random()
        self._config = config
        self._timeouts = timeouts
        self._max_backlog_bytes = max_backlog_bytes
        self._codec = EtcdCodec(config.prefix)
        self._endpoints = EtcdEndpoints(config, self._codec.prefix, timeouts, randomness)
        self._calls = EtcdCalls(self._endpoints, config, timeouts, randomness)
        self._reader = EtcdReader(self._calls, self._codec)
        self._leases = EtcdLeases(self._calls)
        self._watches = EtcdWatches(self._endpoints, timeouts, randomness)
        self._watchers: set[EtcdWatcher] = set()
        self._closed = asyncio.Event()

    @classmethod
    async def open(
        cls,
        config: EtcdConfig,
        *,
        timeouts: EtcdTimeouts = DEFAULT_TIMEOUTS,
        max_backlog_bytes: int = MAX_BACKLOG_BYTES,
    ) -> "EtcdStore":
        """Connect, or not: while etcd is away, which is not known to last, calls say that it is unavailable.

        Raises `StartupError` when no endpoint can be used and one of them has refused the certificate, the
        user or the password, or the prefix: that will not change by itself.
        """
        store = cls(config, timeouts, max_backlog_bytes)
        plain = [endpoint for endpoint in config.endpoints if not endpoint.startswith("https://")]
        if config.password is not None and plain:
            logger.warning(
                "KAFSCALE_ETCD_PASSWORD crosses the network in plain text: write https:// in KAFSCALE_ETCD_ENDPOINTS",
                extra={"endpoints": plain},
            )
        if await store._endpoints.try_each() is None:
            refusal = await store._refusal()
            if refusal is not None:
                await store.close()
                raise StartupError(refusal)
            problems = [problem.text for problem in store._endpoints.problems]
            logger.warning("etcd is not there yet", extra={"problems": problems})
        return store

    async def _refusal(self) -> str | None:
        for problem in self._endpoints.problems:
            text = problem.text if problem.refused else None
            text = text or await tls_refusal(problem.endpoint, self._config, self._timeouts.connect_sec)
            if text is not None:
                return text
        return None

    @property
    def max_operations(self) -> int:
        """How many compares, and how many operations, one transaction may have."""
        return MAX_OPERATIONS

    @property
    def watcher_count(self) -> int:
        """How many watches are open."""
        return len(self._watchers)

    async def get(self, key: str) -> KeyValue | None:
        """See `MetadataStore.get`."""
        return await self._reader.get(key)

    async def range(self, prefix: str) -> Snapshot:
        """See `MetadataStore.range`."""
        return await self._reader.range(*self._codec.range(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """See `MetadataStore.transact`. A `ValueError`, too, for one that is larger than etcd takes."""
        check_transaction(compares, operations, MAX_OPERATIONS)
        request = self._codec.transaction(compares, operations)

        async def send(connection: EtcdConnection, timeout_sec: float) -> rpc.TxnResponse:
            return await connection.kv.Txn(request, timeout=timeout_sec, metadata=connection.metadata())

        what = f"a transaction of {len(operations)} operations and {request.ByteSize()} bytes"
        try:
            return self._codec.result(await self._calls.call(what, send, Repeat.NEVER))
        except EtcdRefusedError as refused:
            if refused.details == LEASE_NOT_FOUND:
                raise LeaseEndedError(await self._leases.ended_of(_leases_of(operations))) from refused
            raise

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore.watch`."""
        return self._watch(*self._codec.range(prefix))

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore.watch_key`."""
        return self._watch(self._codec.key(key), b"")

    async def grant_lease(self, ttl_sec: int) -> int:
        """See `MetadataStore.grant_lease`. One that is granted twice ends by itself."""
        check_ttl(ttl_sec)
        return await self._leases.grant(ttl_sec)

    async def renew_lease(self, lease: int) -> bool:
        """See `MetadataStore.renew_lease`."""
        return await self._leases.renew(lease)

    async def revoke_lease(self, lease: int) -> None:
        """See `MetadataStore.revoke_lease`."""
        await self._leases.revoke(lease)

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if not self._closed.is_set():
            self._closed.set()
            for watcher in self._watchers:
                watcher.woken.set()
            await self._watches.close()
            await self._endpoints.close()

    async def _watch(self, first: bytes, end: bytes) -> AsyncGenerator[Snapshot | Changes, None]:
        watcher = EtcdWatcher(self._codec, first, end, self._max_backlog_bytes)
        self._watchers.add(watcher)
        try:
            has_begun = False
            while not self._closed.is_set():
                if watcher.needs_snapshot:
                    snapshot = await self._snapshot(first, end, is_patient=has_begun)
                    if snapshot is not None:
                        has_begun = True
                        self._watches.add(watcher, snapshot.revision)
                        yield snapshot
                elif (changes := watcher.take()) is not None:
                    yield changes
                else:
                    self._watches.raise_defect()
                    await watcher.woken.wait()
        finally:
            self._watches.remove(watcher)
            self._watchers.discard(watcher)

    async def _snapshot(self, first: bytes, end: bytes, *, is_patient: bool) -> Snapshot | None:
        """The snapshot that a watch begins with; None when it cannot be read now: the watch retries, or ends."""
        try:
            return await self._reader.range(first, end)
        except StoreError as problem:
            if self._closed.is_set():
                return None
            if not is_patient:
                raise
            logger.warning("a watch cannot begin again yet", extra={"problem": str(problem)})
        # Not `wait_for`: before Python 3.12 it loses a cancellation that comes with the result.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeouts.longest_pause_sec):
                await self._closed.wait()
        return None


def _leases_of(operations: Sequence[Operation]) -> list[int]:
    return sorted({each.lease for each in operations if isinstance(each, Put)} - {NO_LEASE})
