"""Compaction of a broker's partition with transactions: what it leaves alone, and what readers need not know then."""

from dataclasses import replace
from typing import Any

from kafscale.formats.checkpoint import decode_checkpoint
from kafscale.formats.object_keys import compaction_of
from kafscale.log.compaction.cleaning_work import CleaningInProcess
from kafscale.log.compaction.compactor import Compactor
from kafscale.log.partition import Partition
from kafscale.protocol.record_batch import BatchHeader
from tests.log.compaction.logs_of_keys import Sent, batch_of, headers_in, newest_values
from tests.log.compaction.test_cleaned_transactions import committed_records
from tests.support.decided_transactions import append, decide
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

SETTINGS: dict[str, Any] = {"merge_check_interval_ms": 3_600_000}
"""Compactions happen when the test says so."""

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
TOPIC = "topic"
P, Q = 7, 8


class Writer:
    """Writes records with keys, in transactions or alone; each call is a segment."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self._next: dict[int, int] = {}

    async def write(self, producer_id: int, *sent: tuple[bytes, bytes]) -> None:
        sequence = self._next.get(producer_id, 0)
        self._next[producer_id] = sequence + len(sent)
        records = [Sent(key, value) for key, value in sent]
        batch = batch_of(records, producer=(producer_id, 0, sequence), is_transactional=True)
        await append(self._broker, TOPIC, batch)
        await self._broker.seal(TOPIC)

    async def alone(self, *sent: tuple[bytes, bytes]) -> None:
        await append(self._broker, TOPIC, batch_of([Sent(key, value) for key, value in sent]))
        await self._broker.seal(TOPIC)

    async def end(self, producer_id: int, *, commits: bool) -> None:
        await decide(self._broker, TOPIC, producer_id, commits=commits)
        await self._broker.seal(TOPIC)


def compactor(broker: InProcessBroker) -> Compactor:
    one = broker.process.serving.log_parts.compactor
    one.tools = replace(one.tools, work=CleaningInProcess())
    return one


async def compact(broker: InProcessBroker) -> bool:
    return await compactor(broker).compact(broker.partition(TOPIC))


async def read_all(broker: InProcessBroker, client: Client) -> bytes:
    broker.forget_cached(TOPIC)
    found, offset = b"", 0
    while offset < broker.partition(TOPIC).record.log_end_offset:
        part = (await client.fetch(TOPIC, {0: offset}))[0]
        assert part.error_code == 0, part
        found += bytes(part.records)
        offset = headers_in(found)[-1].last_offset + 1
    return found


def aborted_at(partition: Partition) -> list[int]:
    """The offsets of the markers of the aborted transactions that readers know of."""
    return [one.last_offset for one in partition.aborted or ()]


def markers(batches: bytes) -> list[BatchHeader]:
    return [header for header in headers_in(batches) if header.is_control]


async def test_an_aborted_transaction_goes_in_three_compactions() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        partition, writer = broker.partition(TOPIC), Writer(broker)
        await writer.alone((b"a", b"1"))
        await writer.write(P, (b"a", b"2"))
        await writer.write(P, (b"b", b"2"))
        await writer.end(P, commits=False)
        # The producer's newest batch is another one then.
        await writer.write(P, (b"c", b"3"))
        await writer.end(P, commits=True)
        seen = []
        for number in range(4):
            await writer.alone((b"z", b"%d" % number))
            await writer.alone((b"y", b"%d" % number))
            assert await compact(broker)
            batches = await read_all(broker, client)
            seen.append((aborted_at(partition), [one.base_offset for one in markers(batches)]))
            committed = committed_records(batches, tuple(partition.aborted or ()))
            values = newest_values(committed)
            assert (values[b"a"], values.get(b"b"), values[b"c"]) == (b"1", None, b"3")
            stored = await broker.objects.inner.get(partition.record.checkpoint_key)
            assert [one.last_offset for one in decode_checkpoint("c", stored).aborted] == aborted_at(
                partition
            )
        # The records go; readers need not know of it any more; the marker goes.
        assert seen[:3] == [([3], [3, 5]), ([], [3, 5]), ([], [5])]


async def test_what_is_not_decided_is_not_compacted() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        partition, writer = broker.partition(TOPIC), Writer(broker)
        for number in range(3):
            await writer.alone((b"a", b"%d" % number))
        await writer.write(Q, (b"a", b"open"))
        for number in range(3, 6):
            await writer.alone((b"a", b"%d" % number))
        assert partition.last_stable_offset == 3
        assert await compact(broker)
        assert partition.references is not None
        compacted = [one.last_offset for one in partition.references if compaction_of(one)]
        assert compacted == [2]
        assert not await compact(broker)
        await writer.end(Q, commits=True)
        await writer.alone((b"z", b"0"))
        assert await compact(broker)
        batches = await read_all(broker, client)
        assert newest_values(committed_records(batches, ())) == {b"a": b"5", b"z": b"0"}
        assert [one.last_offset for one in partition.references if compaction_of(one)][-1] > 5


async def test_a_large_group_is_made_twice_with_the_same_transactions() -> None:
    """It is not kept in memory: its second pass must find what the first one found."""
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        writer = Writer(broker)
        one = compactor(broker)
        one.tools = replace(one.tools, group_bytes=100)
        await writer.write(P, *((b"%d" % number, b"gone") for number in range(5)))
        await writer.write(Q, *((b"%d" % number, b"kept") for number in range(20)))
        await writer.end(P, commits=False)
        await writer.end(Q, commits=True)
        for number in range(3):
            await writer.alone((b"z", b"%d" % number))
            await writer.alone((b"y", b"%d" % number))
            assert await one.compact(broker.partition(TOPIC))
            batches = await read_all(broker, client)
            aborted = tuple(broker.partition(TOPIC).aborted or ())
            values = newest_values(committed_records(batches, aborted))
            assert values == {b"%d" % key: b"kept" for key in range(20)} | {
                b"z": b"%d" % number,
                b"y": b"%d" % number,
            }
