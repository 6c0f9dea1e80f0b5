"""Transactions written straight into the log of a broker in this process: without a coordinator, whatever happens."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.protocol.compression import Codec
from kafscale.protocol.control_records import EndOfTransaction
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_builder import encode_batch, records_of
from tests.log.outcome import Outcome
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker
from tests.support.waiting import PATIENCE_SEC

NOW_MS = 1_700_000_000_000


@dataclass
class Writer:
    """Writes to one partition for many producers, whose epochs and next sequence numbers it knows."""

    logs: LogManager
    partition: Partition
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    async def append(
        self,
        producer_id: int,
        values: Sequence[bytes],
        *,
        timestamp_ms: int = NOW_MS,
        codec: Codec = Codec.NONE,
        is_transactional: bool = True,
    ) -> int:
        """Returns the offset of the first record once the batch is published."""
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(values)
        batch = memoryview(
            encode_batch(
                records_of(values, timestamp_ms=timestamp_ms),
                codec=codec,
                producer_id=producer_id,
                producer_epoch=self.epochs.get(producer_id, 0),
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )
        outcome = Outcome(asyncio.get_running_loop().create_future())
        self.logs.append(self.partition, batch, read_header(batch, 0), timestamp_ms, outcome)
        return await asyncio.wait_for(outcome.told, PATIENCE_SEC)

    async def end(
        self, producer_id: int, *, commits: bool, bumps: bool = False, timestamp_ms: int = NOW_MS
    ) -> int:
        """Write the marker; returns its offset once it is published. `bumps`: in a new epoch (KIP-890)."""
        outcome = Outcome(asyncio.get_running_loop().create_future())
        if bumps:
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.sequences[producer_id] = 0
        end = EndOfTransaction(producer_id, self.epochs.get(producer_id, 0), 0, commits)
        self.logs.append_marker(self.partition, end, timestamp_ms, outcome)
        return await asyncio.wait_for(outcome.told, PATIENCE_SEC)

    async def commit(self, producer_id: int) -> int:
        return await self.end(producer_id, commits=True)

    async def abort(self, producer_id: int) -> int:
        return await self.end(producer_id, commits=False)


def writer(broker: InProcessBroker, topic: str, index: int = 0) -> Writer:
    """To a partition that the broker leads; its log must be open, as after the first append or read."""
    logs, partition = broker.process.serving.logs, broker.partition(topic, index)
    assert logs.open_now(partition) is not None
    return Writer(logs, partition)


def committed_request(topic: str, offsets: dict[int, int], **limits: int) -> Any:
    """A Fetch request of a `read_committed` consumer."""
    request = wire.fetch_request(topic, offsets, **limits)
    request.isolation_level = 1
    return request


class CommittedConsumer:
    """Reads answers to `read_committed` fetches as Java's consumer does (CompletedFetch).

    The aborted producers are those whose transactions begin at or below a batch, and whose abort marker did not come
    yet. Each fetch begins anew.
    """

    def __init__(self, offset: int = 0) -> None:
        self.position = offset
        self.records: list[tuple[int, bytes | None]] = []

    def take(self, part: Any) -> None:
        """The part of a reply for the partition, which was asked for from the position on."""
        assert part.error_code == 0
        ahead = sorted(part.aborted_transactions, key=lambda one: one.first_offset)
        assert [one.first_offset for one in part.aborted_transactions] == [one.first_offset for one in ahead]
        aborted: set[int] = set()
        for batch in wire.batches_in(part.records):
            last_offset = batch.base_offset + batch.last_offset_delta
            assert last_offset < part.last_stable_offset
            while ahead and ahead[0].first_offset <= last_offset:
                aborted.add(ahead.pop(0).producer_id)
            if batch.is_control_batch:
                if next(iter(batch)).key[2:4] == b"\x00\x00":
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                self.records += [
                    (record.offset, record.value) for record in batch if record.offset >= self.position
                ]
            self.position = last_offset + 1
        assert not ahead, "no transaction that the answer has nothing of"


async def consume(client: Client, topic: str, index: int, consumer: CommittedConsumer, **limits: int) -> Any:
    """One fetch of the consumer; returns the partition's part of the reply."""
    request = committed_request(topic, {index: consumer.position}, **limits)
    await client.send(request, wire.FETCH_VERSION)
    part = (await client.receive_fetch())[index]
    consumer.take(part)
    return part
