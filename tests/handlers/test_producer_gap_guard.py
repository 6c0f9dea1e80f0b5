"""No batch of a producer jumps over one that this broker has just refused: both hear that they are to come again."""

import pytest

from kafscale.cluster.leadership import Claimed
from kafscale.log.partition import Partition
from kafscale.log.producer_gap_guard import (
    MOST_OUT_OF_TURN,
    MOST_REMEMBERED,
    REMEMBERED_SEQUENCES,
    ProducerGapGuard,
)
from kafscale.log.producer_state import PendingBatch, ProducerStates, UnpublishedBatch
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import MAX_SEQUENCE, BatchHeader, read_header
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.owners import lead_elsewhere

PLACE = ("topic", 0)
PRODUCER = 7
UNKNOWN = ProducerStates()

ACCEPTED = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def batch(sequence: int, *, producer_id: int = PRODUCER, epoch: int = 0) -> bytes:
    value = b"%d" % sequence
    return wire.batch([value], producer_id=producer_id, producer_epoch=epoch, sequence=sequence)


def header(sequence: int, *, producer_id: int = PRODUCER, epoch: int = 0) -> BatchHeader:
    return read_header(batch(sequence, producer_id=producer_id, epoch=epoch), 0)


def has_appended(last_sequence: int, *, epoch: int = 0) -> ProducerStates:
    states = ProducerStates()
    states.append(PRODUCER, PendingBatch(None, 0, epoch, last_sequence, last_sequence, 0))
    return states


async def outcome(client: Client, sequence: int, *, epoch: int = 0) -> int:
    return int((await client.produce("topic", 0, batch(sequence, epoch=epoch))).error_code)


async def outcomes(client: Client, *sequences: int) -> list[int]:
    return [await outcome(client, sequence) for sequence in sequences]


async def values(client: Client) -> list[bytes | None]:
    part = (await client.fetch("topic", {0: 0}, max_wait_ms=0))[0]
    return [value for _, value in wire.records_in(part.records)]


def stop_leading(broker: InProcessBroker) -> Partition:
    partition = broker.partition("topic")
    broker.process.serving.logs._led.remove(partition)
    return partition


def lead_again(broker: InProcessBroker, partition: Partition) -> None:
    """With what is published by then."""
    claimed = Claimed("topic", 0, partition.record, partition.revision)
    broker.process.serving.logs.lead(claimed)


async def refuse_by_replacement(broker: InProcessBroker, client: Client, *sequences: int) -> list[int]:
    """Batches are in flight as another leader comes and goes; returns their answers."""
    with broker.objects.hold("put_if_absent", "*.entry") as uploading:
        for sequence in sequences:
            await client.send_produce("topic", {0: batch(sequence)})
        await uploading.reached()
        lease = await lead_elsewhere(broker.metadata, "topic", objects=broker.objects.inner)
    answers = [(await client.receive_produce())[1][0].error_code for _ in sequences]
    await broker.metadata.revoke_lease(lease)
    await until(lambda: broker.process.serving.logs.partition("topic", 0), "the broker leads again")
    return answers


@pytest.mark.parametrize("known", [pytest.param(0, id="new producer"), pytest.param(3, id="known producer")])
async def test_batch_behind_one_lost_with_its_leader_waits(known: int) -> None:
    """Found by chaos runs: librdkafka lost records of a new producer, and sent again all of a known one."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcomes(client, *range(known)) == [ACCEPTED] * known
        assert await refuse_by_replacement(broker, client, known) == [NOT_LEADER]
        assert await outcomes(client, known + 1, known + 2) == [NOT_LEADER] * 2
        assert await outcomes(client, known, known + 1, known + 2) == [ACCEPTED] * 3
        assert await values(client) == [b"%d" % sequence for sequence in range(known + 3)]
        assert not broker.process.serving.log_parts.gap_guard or await outcome(client, known + 3) == ACCEPTED


@pytest.mark.parametrize("known", [pytest.param(0, id="new producer"), pytest.param(3, id="known producer")])
async def test_batch_behind_one_refused_on_arrival_waits(known: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcomes(client, *range(known)) == [ACCEPTED] * known
        partition = stop_leading(broker)
        assert await outcome(client, known) == NOT_LEADER
        lead_again(broker, partition)
        assert await outcome(client, known + 1) == NOT_LEADER
        assert await outcomes(client, known, known + 1) == [ACCEPTED] * 2
        assert await outcome(client, known + 3) == OUT_OF_ORDER


async def test_new_producer_that_begins_later_is_refused_once() -> None:
    """Found by a chaos run: its first batches were in flight to the last leader, and could never be stored."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        for producer_id, sequences, expected in (
            (100, (5, 6, 0, 1, 5), [NOT_LEADER, NOT_LEADER, ACCEPTED, ACCEPTED, OUT_OF_ORDER]),
            # It was forgotten, and has nothing earlier.
            (200, (5, 5, 6), [NOT_LEADER, ACCEPTED, ACCEPTED]),
        ):
            batches = [batch(sequence, producer_id=producer_id) for sequence in sequences]
            answers = [(await client.produce("topic", 0, one)).error_code for one in batches]
            assert answers == expected


async def test_new_producer_that_gave_many_up_is_taken_in_the_end() -> None:
    """Its refused batches are more than are remembered: each new one would be taken for a beginning again."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        answers = await outcomes(client, *range(5, 5 + REMEMBERED_SEQUENCES))
        assert answers == [NOT_LEADER] * REMEMBERED_SEQUENCES
        answers = await outcomes(client, *[100] * (MOST_OUT_OF_TURN + 1))
        assert answers[-1] == ACCEPTED
        assert await outcomes(client, 101, 102) == [ACCEPTED] * 2


async def test_batch_of_a_new_epoch_behind_its_refused_first_waits() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcomes(client, 0, 1) == [ACCEPTED] * 2
        partition = stop_leading(broker)
        assert await outcome(client, 0, epoch=1) == NOT_LEADER
        lead_again(broker, partition)
        assert await outcome(client, 1, epoch=1) == NOT_LEADER
        assert [await outcome(client, sequence, epoch=1) for sequence in (0, 1)] == [ACCEPTED] * 2


async def test_refusal_long_ago_does_not_hide_a_new_one() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, 0) == ACCEPTED
        assert await refuse_by_replacement(broker, client, 1) == [NOT_LEADER]
        assert await outcomes(client, 1, 2) == [ACCEPTED] * 2
        assert await refuse_by_replacement(broker, client, 3, 4) == [NOT_LEADER] * 2
        assert await outcome(client, 5) == NOT_LEADER
        assert await outcomes(client, 3, 4, 5) == [ACCEPTED] * 3


@pytest.mark.parametrize(
    ("known", "then"), [pytest.param(0, ACCEPTED, id="new"), pytest.param(3, OUT_OF_ORDER, id="known")]
)
async def test_client_that_gave_a_batch_up_hears_so_in_the_end(known: int, then: ErrorCode) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcomes(client, *range(known)) == [ACCEPTED] * known
        partition = stop_leading(broker)
        assert await outcome(client, known) == NOT_LEADER
        lead_again(broker, partition)
        assert await outcomes(client, *[known + 1] * MOST_OUT_OF_TURN) == [NOT_LEADER] * MOST_OUT_OF_TURN
        assert await outcome(client, known + 1) == then


async def test_gap_that_this_broker_did_not_make_is_out_of_order() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcomes(client, 0, 2) == [ACCEPTED, OUT_OF_ORDER]
        assert not broker.process.serving.log_parts.gap_guard


async def test_producer_that_was_forgotten_begins_with_any_sequence() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcomes(client, 41, 41, 42) == [NOT_LEADER, ACCEPTED, ACCEPTED]
        assert not broker.process.serving.log_parts.gap_guard


async def test_retry_of_a_stored_batch_is_answered_as_stored() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await refuse_by_replacement(broker, client, 0) == [NOT_LEADER]
        assert await outcomes(client, 0, 1, 1) == [ACCEPTED] * 3
        assert await values(client) == [b"0", b"1"]


def test_only_later_batches_of_the_same_producer_wait() -> None:
    guard = ProducerGapGuard()
    guard.refused_on_arrival(PLACE, header(5))
    assert guard.refuses(PLACE, header(6), UNKNOWN)
    assert not guard.refuses(PLACE, header(5), UNKNOWN)
    assert not guard.refuses(PLACE, header(4), UNKNOWN)
    assert not guard.refuses(PLACE, header(6, epoch=1), UNKNOWN)
    assert not guard.refuses(PLACE, header(6, producer_id=8), UNKNOWN)
    assert not guard.refuses(("topic", 1), header(6), UNKNOWN)


def test_batches_wait_until_every_refused_one_is_appended() -> None:
    guard = ProducerGapGuard()
    for sequence in (6, 5):
        guard.refused_on_arrival(PLACE, header(sequence))
    assert guard.refuses(PLACE, header(6), has_appended(4))
    assert not guard.refuses(PLACE, header(6), has_appended(5))
    assert guard.refuses(PLACE, header(7), has_appended(5))
    assert not guard.refuses(PLACE, header(7), has_appended(6))
    assert not guard.refuses(PLACE, header(8), has_appended(7))
    assert not guard, "what is appended is refused no more"


def test_new_batch_waits_for_those_that_were_held_back() -> None:
    """Found (seed 2420751723): a client that knows of the first refusal alone sends a new batch behind it."""
    guard = ProducerGapGuard()
    guard.refused_on_arrival(PLACE, header(3))
    assert guard.refuses(PLACE, header(4), has_appended(2))
    assert not guard.refuses(PLACE, header(3), has_appended(2))
    assert guard.refuses(PLACE, header(9), has_appended(3))
    assert not guard.refuses(PLACE, header(4), has_appended(3))
    assert not guard.refuses(PLACE, header(9), has_appended(8))


def test_newer_epoch_takes_the_place_of_an_older_one() -> None:
    guard = ProducerGapGuard()
    guard.refused_on_arrival(PLACE, header(0, epoch=2))
    guard.refused_on_arrival(PLACE, header(9, epoch=1))
    assert not guard.refuses(PLACE, header(10, epoch=1), UNKNOWN)
    assert guard.refuses(PLACE, header(1, epoch=2), has_appended(9, epoch=1))
    assert not guard.refuses(PLACE, header(1, epoch=2), has_appended(4, epoch=3))


def test_sequences_go_on_at_zero() -> None:
    guard = ProducerGapGuard()
    guard.refused_on_arrival(PLACE, header(MAX_SEQUENCE))
    assert guard.refuses(PLACE, header(0), has_appended(MAX_SEQUENCE - 1))
    assert not guard.refuses(PLACE, header(1), has_appended(0))
    guard.refused_on_arrival(PLACE, header(0))
    assert not guard.refuses(PLACE, header(MAX_SEQUENCE), UNKNOWN)


def test_batch_refused_again_counts_from_the_start() -> None:
    guard = ProducerGapGuard()
    for _ in range(3):
        guard.refused_on_arrival(PLACE, header(5))
        refusals = [guard.refuses(PLACE, header(6), UNKNOWN) for _ in range(MOST_OUT_OF_TURN)]
        assert refusals == [True] * MOST_OUT_OF_TURN
    assert not guard.refuses(PLACE, header(6), UNKNOWN)
    assert not guard.refuses_beginning(PLACE, header(6))
    assert not guard.refuses(PLACE, header(7), has_appended(6))
    assert not guard


def test_producers_and_sequences_remembered_are_bounded() -> None:
    guard = ProducerGapGuard()
    for producer_id in range(MOST_REMEMBERED + 10):
        guard.refused_on_arrival(PLACE, header(5)._replace(producer_id=producer_id))
    assert len(guard) == MOST_REMEMBERED
    assert not guard.refuses(PLACE, header(6)._replace(producer_id=9), UNKNOWN)
    assert guard.refuses(PLACE, header(6)._replace(producer_id=10), UNKNOWN)
    for sequence in range(100, 100 + 10 * REMEMBERED_SEQUENCES):
        guard.refused_on_arrival(PLACE, header(sequence))
    last = 99 + REMEMBERED_SEQUENCES
    assert guard.refuses(PLACE, header(last + 1), has_appended(last - 1))
    assert not guard.refuses(PLACE, header(last + 1), has_appended(last))


def test_unpublished_are_those_of_the_newest_epoch() -> None:
    states = ProducerStates()
    for epoch, sequence in ((0, 8), (0, 9), (1, 0), (1, 1)):
        states.append(PRODUCER, PendingBatch(None, 0, epoch, sequence, sequence, 0))
    assert list(states.unpublished([PRODUCER, 8])) == [
        UnpublishedBatch(PRODUCER, 1, 0),
        UnpublishedBatch(PRODUCER, 1, 1),
    ]
    assert states.newest_sequence(PRODUCER) == (1, 1)
    assert states.newest_sequence(8) is None
