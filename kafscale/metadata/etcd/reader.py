"""Linearizable reads from etcd, large ranges in pages of one revision."""

import logging

from aetcd import rpc

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.etcd.calls import EtcdCalls, Repeat
from kafscale.metadata.etcd.codec import EtcdCodec
from kafscale.metadata.etcd.connection import EtcdConnection, EtcdRefusedError
from kafscale.metadata.etcd.verdict import COMPACTED
from kafscale.metadata.store import KeyValue, Snapshot
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

FIRST_PAGE_KEYS = 200
MAX_PAGE_KEYS = 1000
# What a page should come to, judged by the page before it; one key is always fetched.
PAGE_BYTES = 4 * 1024 * 1024
_ATTEMPTS = 10
_SHOWN_CHARACTERS = 200


def _shown(key: bytes) -> str:
    """The key for a message: parts of some keys are chosen by clients."""
    return quoted(key.decode(), _SHOWN_CHARACTERS)


class EtcdReader:
    """Reads keys and ranges. Raises `StoreUnavailableError` only."""

    def __init__(self, calls: EtcdCalls, codec: EtcdCodec) -> None:
        self._calls = calls
        self._codec = codec

    async def get(self, key: str) -> KeyValue | None:
        """The key as it is now."""
        answer = await self._read(
            f"a read of '{quoted(key, _SHOWN_CHARACTERS)}'", rpc.RangeRequest(key=self._codec.key(key))
        )
        return self._codec.item(answer.kvs[0]) if answer.kvs else None

    async def range(self, first: bytes, end: bytes) -> Snapshot:
        """The keys from `first` on, before `end`; with an empty `end` the key `first` alone."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._read_pages(first, end)
            except EtcdRefusedError as refused:
                if refused.details != COMPACTED:
                    raise
                logger.info("a range was compacted away between two pages", extra={"first": _shown(first)})
        raise StoreUnavailableError(
            f"etcd compacted the range from {_shown(first)} away {_ATTEMPTS} times while it was read"
        )

    async def _read_pages(self, first: bytes, end: bytes) -> Snapshot:
        items: list[KeyValue] = []
        revision, limit = 0, FIRST_PAGE_KEYS
        while True:
            page = await self._read(
                f"a read of the range from {_shown(first)}",
                rpc.RangeRequest(key=first, range_end=end, limit=limit, revision=revision),
            )
            items += map(self._codec.item, page.kvs)
            # The header has the newest revision: of the first page it is the page's own.
            revision = revision or page.header.revision
            if not page.more:
                return Snapshot(items=tuple(items), revision=revision)
            first = page.kvs[-1].key + b"\0"
            limit = max(1, min(MAX_PAGE_KEYS, PAGE_BYTES * len(page.kvs) // page.ByteSize()))

    async def _read(self, what: str, request: rpc.RangeRequest) -> rpc.RangeResponse:
        async def send(connection: EtcdConnection, timeout_sec: float) -> rpc.RangeResponse:
            return await connection.kv.Range(request, timeout=timeout_sec, metadata=connection.metadata())

        return await self._calls.call(what, send, Repeat.READ)
