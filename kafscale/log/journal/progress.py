"""Keeps the record of a broker's own journal: how far it is committed, for readers and for brokers that end it."""

import asyncio
import logging
import random
from collections.abc import Callable

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.journal_entry import NOTHING_COMMITTED
from kafscale.formats.journal_record import JournalRecord, decode_journal_record, encode_journal_record
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, MetadataStore, Put
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

LEAST_INTERVAL_SEC = 0.1
LAST_RETRY_SEC = 2.0


class JournalProgress:
    """Puts what is committed, off every acknowledgement's way and at most every `LEAST_INTERVAL_SEC`.

    `ended` is called once when the record says that another broker has ended the journal: it is never written again.
    Its argument: the fence's place; None if the record is gone.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        journal_id: str,
        broker_id: int,
        jitter: random.Random,
        ended: Callable[[int | None], None],
    ) -> None:
        self._metadata = metadata
        self._key = keys.journal(journal_id)
        self._broker_id = broker_id
        self._jitter = jitter
        self._ended = ended
        self._revision = ABSENT
        self._wanted = NOTHING_COMMITTED
        self._reported = NOTHING_COMMITTED
        self._is_over = False
        self._tasks = TaskOwner()

    @property
    def reported(self) -> int:
        """The newest sequence that the record is known to have, -1 for none."""
        return self._reported

    async def begin(self) -> None:
        """Create the record; no entry may be put before. Retries until the store answers."""
        await self._write()

    def committed(self, through: int) -> None:
        """The journal is committed up to this sequence."""
        self._wanted = max(self._wanted, through)
        if not self._is_over and not self._tasks:
            self._tasks.spawn(self._follow(), f"report {self._key}")

    async def close(self) -> None:
        """Stop reporting. The last report stays."""
        await self._tasks.close()

    async def _follow(self) -> None:
        while self._reported < self._wanted and not self._is_over:
            await self._write()
            await asyncio.sleep(LEAST_INTERVAL_SEC)

    async def _write(self) -> None:
        delay_sec = LEAST_INTERVAL_SEC
        while not self._is_over:
            try:
                await self._attempt()
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                # An answer that was lost is found by the next attempt: its compare fails, and shows the record.
                logger.debug("the journal's progress was not stored", extra={"problem": str(problem)})
                await asyncio.sleep(delay_sec * self._jitter.uniform(0.5, 1.0))
                delay_sec = min(delay_sec * 2, LAST_RETRY_SEC)
            else:
                return

    async def _attempt(self) -> None:
        through = self._wanted
        record = JournalRecord(broker_id=self._broker_id, progress=through)
        while True:
            compare = Compare(self._key, self._revision)
            done = await self._metadata.transact([compare], [Put(self._key, encode_journal_record(record))])
            if done.succeeded:
                self._revision, self._reported = done.revision, through
                return
            (found,) = done.found
            # A record that was there and is gone is that of a journal which ended long ago.
            ended_at = None if found is None else decode_journal_record(self._key, found.value).ended_at
            if found is None or ended_at is not None:
                self._is_over = True
                self._ended(ended_at)
                return
            self._revision = found.mod_revision
