"""Reads by a broker that has not heard that a topic was deleted, and that its name is another topic's now."""

import struct
import uuid
from array import array
from dataclasses import replace
from functools import partial

import pytest

from kafscale.formats.batch_walk import Chain, epochs_agree
from kafscale.formats.partition_record import (
    EpochStart,
    JournalPosition,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
    epoch_of,
    is_same_log,
)
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, encode_footer
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_fetch_elsewhere import TOPIC, Pair, pair
from tests.support import wire
from tests.support.on_uvloop import on_uvloop

_EPOCH_POSITION = 12
_OTHER_EPOCH = 77


def restamped(segment: bytes) -> bytes:
    """The segment of one batch as a leader of another epoch would have written it."""
    body = bytearray(segment[HEADER_SIZE:-FOOTER_SIZE])
    struct.pack_into(">i", body, _EPOCH_POSITION, _OTHER_EPOCH)
    last_offset = int.from_bytes(body[:8], "big") + int.from_bytes(body[23:27], "big")
    footer = encode_footer(body_crc=body_crc([body]), last_offset=last_offset)
    return segment[:HEADER_SIZE] + bytes(body) + footer


async def stale_reader(both: Pair) -> Partition:
    """The reader follows the partition, has nothing of it in memory, and hears nothing of it any more."""
    await both.produce(b"old")
    await both.leader.seal(TOPIC, both.index)
    assert (await both.fetch(both.consumer, 0)).error_code == 0
    logs = both.reader.process.serving.logs
    stale = logs.readable(TOPIC, both.index)
    assert stale is not None and stale.is_followed
    logs._followed._followed[TOPIC, both.index].task.cancel()
    logs.reader.forget(stale)
    (key,) = await both.reader.objects.keys(f"default/{TOPIC}/{both.index}/*.kfs")
    data = restamped(await both.reader.objects.inner.get(key))
    await both.reader.objects.inner.put(key, [data])
    return stale


async def make_again(both: Pair, revised: PartitionRecord) -> None:
    key = keys.partition(TOPIC, both.index)
    await both.leader.metadata.transact([], [Put(key, encode_partition_record(revised))])


async def record_of(both: Pair) -> PartitionRecord:
    found = await both.leader.metadata.get(keys.partition(TOPIC, both.index))
    assert found is not None
    return decode_partition_record(found.key, found.value)


@on_uvloop
async def test_object_of_the_next_topic_of_the_name_is_not_served() -> None:
    """Its key, size and offsets are as the old record says; only its leader epochs are not."""
    async with pair() as both:
        stale = await stale_reader(both)
        record = replace(
            await record_of(both), leader_epoch=_OTHER_EPOCH, epochs=(EpochStart(_OTHER_EPOCH, 0),)
        )
        await make_again(both, record)
        part = await both.fetch(both.consumer, 0, max_wait_ms=0)
        assert (part.error_code, part.records or b"") == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert both.reader.process.serving.logs.readable(TOPIC, both.index) is not stale
        part = await both.fetch(both.consumer, 0)
        assert (part.error_code, wire.records_in(part.records)) == (0, [(0, b"old")])


@on_uvloop
async def test_segments_with_odd_epochs_of_the_same_topic_are_served() -> None:
    """Other writers of the format leave what epochs clients sent."""
    async with pair() as both:
        await stale_reader(both)
        for _ in range(2):
            part = await both.fetch(both.consumer, 0)
            assert (part.error_code, wire.records_in(part.records)) == (0, [(0, b"old")])


EARLIER = PartitionRecord(leader_epoch=5, log_end_offset=20, epochs=(EpochStart(2, 0), EpochStart(5, 10)))


@pytest.mark.parametrize(
    ("later", "is_same"),
    [
        pytest.param(replace(EARLIER, log_end_offset=30), True, id="more of it"),
        pytest.param(
            replace(EARLIER, leader_epoch=6, epochs=(*EARLIER.epochs, EpochStart(6, 20))),
            True,
            id="led elsewhere",
        ),
        pytest.param(
            PartitionRecord(leader_epoch=300, log_end_offset=900, epochs=(EpochStart(200, 500),)),
            True,
            id="its epochs are forgotten",
        ),
        # What a broker knows of the journal may be ahead of the record.
        pytest.param(replace(EARLIER, log_end_offset=19), True, id="of its epoch, behind it"),
        pytest.param(
            replace(EARLIER, leader_epoch=6, log_end_offset=19, epochs=(*EARLIER.epochs, EpochStart(6, 19))),
            False,
            id="shorter",
        ),
        pytest.param(replace(EARLIER, leader_epoch=4), False, id="of an earlier epoch"),
        pytest.param(
            PartitionRecord(leader_epoch=8, log_end_offset=50, epochs=(EpochStart(8, 0),)),
            False,
            id="made again",
        ),
        pytest.param(PartitionRecord(leader_epoch=6, log_end_offset=20), False, id="without any epoch"),
    ],
)
def test_epochs_tell_a_log_from_another_of_its_name(later: PartitionRecord, is_same: bool) -> None:
    assert is_same_log(later, EARLIER) is is_same


def test_ids_of_topics_tell_a_log_from_another_of_its_name() -> None:
    """Where epochs do not: the other one has as many records, and an epoch that goes on."""
    position = JournalPosition(journal_id="journal", sequence=7, topic_id=uuid.UUID(int=1))
    earlier = PartitionRecord(leader_epoch=5, log_end_offset=0, journal=position)
    later = replace(earlier, leader_epoch=6)
    assert is_same_log(later, earlier)
    assert not is_same_log(replace(later, journal=replace(position, topic_id=uuid.UUID(int=2))), earlier)


def test_offset_passed_over_between_two_leaders_is_of_no_epoch() -> None:
    """A merged segment has the gap inside: it was taken for another topic's."""
    chain = Chain(
        offsets=array("q"),
        positions=array("q"),
        epochs=[EpochStart(2, 0), EpochStart(5, 11)],
        gaps=[11],
        cuts=[],
        next_offset=20,
        next_position=0,
    )
    assert epochs_agree(chain, partial(epoch_of, EARLIER))
    assert not epochs_agree(replace(chain, gaps=[]), partial(epoch_of, EARLIER))
