"""A topic of several partitions in memory, whose leader writes a journal; read in the way of Spark's tasks."""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager

from kafscale.arrow.record_columns import record_columns
from kafscale.memory.slab import SlabPool
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit, divide
from kafscale.reader.split_reader import split_batches
from kafscale.reader.splits import DEFAULT_SPLIT_BYTES, plan_pieces
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.stored_batches import StoredBatches
from kafscale.reader.topic_state import Freshness, TopicLog, TopicStates
from tests.spark_jobs.support.memory_topic import MIB, NAMESPACE, run
from tests.spark_jobs.support.sent_records import batches_of, sent
from tests.spark_jobs.support.stored_journal import StoredJournal
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.support.controlled_store import ControlledStore

Values = dict[tuple[int, int], bytes | None]
"""By partition and offset."""


class JournalTopic:
    """The topic `events`. `StoreOpener` for tasks."""

    def __init__(self, partitions: int = 4) -> None:
        self.metadata = MemoryStore()
        self.objects = ControlledStore()
        self.stored = StoredTopic(
            self.metadata, self.objects, "events", namespace=NAMESPACE, index_interval=10
        )
        self.journal = StoredJournal()
        self.partitions = list(range(partitions))
        self.values: Values = {}
        run(self.stored.create(partitions))
        run(self.journal.lead(self.stored, self.partitions))

    def flush(self, *partitions: int, records: int = 3, value_bytes: int = 0) -> None:
        """An entry with a slice of each of these partitions; all of them if none is named."""
        batches = {
            one: batches_of(
                sent(records, f"p{one}", first=self.journal.ends[one], value_bytes=value_bytes),
                batch_records=2,
            )
            for one in partitions or self.partitions
        }
        for partition, stored in run(self.journal.flush(self.stored, batches)).items():
            self.values |= {(partition, one.offset): one.value for one in stored}

    def consolidate(self, *partitions: int) -> None:
        run(self.journal.consolidate(self.stored, *(partitions or self.partitions)))

    def seal(self, *partitions: int) -> None:
        run(self.journal.seal(self.stored, *(partitions or self.partitions)))

    def gather(self, *partitions: int) -> str:
        return run(self.journal.gather(self.stored, *(partitions or self.partitions)))

    def collect(self) -> None:
        run(self.journal.collect(self.stored))

    def log(self, freshness: Freshness = Freshness.PUBLISHED) -> TopicLog:
        """The topic as it is now."""
        return run(TopicStates(self.metadata, self.objects, NAMESPACE, freshness).topic("events"))

    def splits(
        self, partitions: Sequence[int] | None = None, *, split_bytes: int = DEFAULT_SPLIT_BYTES
    ) -> list[AnySplit]:
        """All that is published of these partitions, planned now."""

        async def plan() -> list[AnySplit]:
            logs = (
                await TopicStates(self.metadata, self.objects, NAMESPACE).topic("events", partitions)
            ).partitions
            planned = [
                (
                    log,
                    await plan_pieces(log, self.objects, NAMESPACE, log.log_start_offset, log.log_end_offset),
                )
                for log in logs
            ]
            return divide(planned, split_bytes)

        return run(plan())

    def read(self, splits: Sequence[AnySplit]) -> Values:
        """The values; each place comes once, and each partition's offsets ascend within a split."""
        found: Values = {}
        for split in splits:
            last: dict[int, int] = {}
            with self.batches(split) as stored:
                for batch in record_columns(stored, "events", include_headers=True):
                    batch.validate(full=True)
                    for row in batch.to_pylist():
                        partition, offset = row["partition"], row["offset"]
                        assert last.get(partition, -1) < offset
                        assert (partition, offset) not in found
                        last[partition] = offset
                        found[partition, offset] = row["value"]
        return found

    @contextmanager
    def batches(self, split: AnySplit) -> Iterator[Iterator[StoredBatches]]:
        """The split as a task gets it from the stores."""
        with (
            StoreThread(self) as stores,
            closing(split_batches(NAMESPACE, split, stores, SlabPool(MIB))) as found,
        ):
            yield found

    # --- `StoreOpener`

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        return self.objects

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        return self.metadata
