"""Hands out producer ids, each once in the life of the cluster."""

import asyncio
import logging

from kafscale.errors import CorruptDataError, StoreIndeterminateError
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, MetadataStore, Put

BLOCK_SIZE = 1000

_log = logging.getLogger(__name__)


class ProducerIds:
    """Producer ids from blocks that are reserved in the metadata store by compare-and-swap.

    What is left of a block when the broker stops is never handed out.
    """

    def __init__(self, store: MetadataStore, *, retry_delay_sec: float = 0.2) -> None:
        self._store = store
        self._retry_delay_sec = retry_delay_sec
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next_producer_id(self) -> int:
        """An id that no producer had before, on any broker.

        Raises `StoreUnavailableError` when a block is needed and cannot be reserved; `CorruptDataError`.
        """
        async with self._lock:
            if self._next == self._end:
                first = await self._reserve_block()
                self._next, self._end = first, first + BLOCK_SIZE
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _reserve_block(self) -> int:
        """The first id of a block that is ours.

        After an unknown outcome the record is read again and a block reserved after whatever it says: had
        the first attempt landed, its block is lost, never given twice.
        """
        while True:
            found = await self._store.get(keys.PRODUCER_IDS)
            first = 0 if found is None else first_free(found.value)
            revision = ABSENT if found is None else found.mod_revision
            value = encode_fields({"next_producer_id": first + BLOCK_SIZE})
            try:
                result = await self._store.transact(
                    [Compare(keys.PRODUCER_IDS, revision)], [Put(keys.PRODUCER_IDS, value)]
                )
            except StoreIndeterminateError as problem:
                _log.warning(
                    "a reservation of producer ids has an unknown outcome, trying again: %s", problem
                )
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if result.succeeded:
                return first


async def pass_over(store: MetadataStore, next_producer_id: int, *, retry_delay_sec: float = 0.2) -> None:
    """See to it that no producer is given an id below `next_producer_id` from now on.

    Raises `StoreUnavailableError`, `CorruptDataError`.
    """
    while True:
        found = await store.get(keys.PRODUCER_IDS)
        if found is not None and first_free(found.value) >= next_producer_id:
            return
        revision = ABSENT if found is None else found.mod_revision
        value = encode_fields({"next_producer_id": next_producer_id})
        try:
            await store.transact([Compare(keys.PRODUCER_IDS, revision)], [Put(keys.PRODUCER_IDS, value)])
        except StoreIndeterminateError as problem:
            _log.warning("reading the producer ids again, passing over has an unknown outcome: %s", problem)
            await asyncio.sleep(retry_delay_sec)


def first_free(value: bytes) -> int:
    """The first producer id that no broker has reserved. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    first = decode_fields(keys.PRODUCER_IDS, value).get("next_producer_id")
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise CorruptDataError(keys.PRODUCER_IDS, f"'next_producer_id' is {first!r}, not a number from 0")
    return first
