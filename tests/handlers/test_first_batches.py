"""What a producer sent later does not become its first batch, when the first was refused just before."""

from kafscale.handlers.first_batches import MOST_OUT_OF_TURN, MOST_REMEMBERED, FirstBatches
from kafscale.metadata.leadership import Claimed
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import MAX_SEQUENCE, BatchHeader, read_header
from tests.support import wire
from tests.support.holders import lead_elsewhere
from tests.support.in_process_broker import Client, in_process_broker, until

PLACE = ("topic", 0)


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    value = b"%d" % sequence
    return wire.batch([value], producer_id=producer_id, producer_epoch=epoch, sequence=sequence)


def header(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(batch(sequence, producer_id=producer_id, epoch=epoch), 0)


async def outcome(client: Client, sequence: int) -> int:
    return int((await client.produce("topic", 0, batch(sequence))).error_code)


async def values(client: Client) -> list[bytes | None]:
    part = (await client.fetch("topic", {0: 0}, max_wait_ms=0))[0]
    return [value for _, value in wire.records_in(part.records)]


async def test_a_leader_that_is_replaced_and_leads_again_takes_no_later_batch_first() -> None:
    """Found by a chaos run: librdkafka took the later one's success to say that the first was stored, too."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.kfs") as uploading:
            await client.send_produce("topic", {0: batch(0)})
            await uploading.reached()
            lease = await lead_elsewhere(broker.metadata, "topic")
        assert (await client.receive_produce())[1][0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await broker.metadata.revoke_lease(lease)
        await until(lambda: broker.process.serving.logs.partition("topic", 0), "the broker leads again")
        assert await outcome(client, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await values(client) == []
        assert [await outcome(client, sequence) for sequence in (0, 1, 2)] == [ErrorCode.NONE] * 3
        assert await values(client) == [b"0", b"1", b"2"]


async def test_a_batch_that_was_refused_without_a_leader_comes_first() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        partition, logs = broker.partition("topic"), broker.process.serving.logs
        assert logs._forget(partition)
        assert await outcome(client, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        logs.lead(Claimed("topic", 0, partition.record, partition.led_since_revision))
        assert await outcome(client, 6) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [await outcome(client, sequence) for sequence in (5, 6)] == [ErrorCode.NONE] * 2
        assert not broker.process.serving.first_batches


async def test_a_client_that_gave_its_first_batch_up_is_not_held_up_for_long() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        partition, logs = broker.partition("topic"), broker.process.serving.logs
        assert logs._forget(partition)
        assert await outcome(client, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        logs.lead(Claimed("topic", 0, partition.record, partition.led_since_revision))
        refused = [await outcome(client, 6) for _ in range(MOST_OUT_OF_TURN)]
        assert refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * MOST_OUT_OF_TURN
        assert await outcome(client, 6) == ErrorCode.NONE


async def test_a_producer_that_was_forgotten_begins_with_any_sequence() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        assert await outcome(client, 41) == ErrorCode.NONE
        assert not broker.process.serving.first_batches


def test_only_later_batches_of_the_same_producer_place_and_epoch_wait() -> None:
    firsts = FirstBatches()
    firsts.came(PLACE, header(5))
    assert firsts.refuses(PLACE, header(6))
    assert not firsts.refuses(PLACE, header(5))
    assert not firsts.refuses(PLACE, header(4))
    assert not firsts.refuses(PLACE, header(6, epoch=1))
    assert not firsts.refuses(PLACE, header(6, producer_id=8))
    assert not firsts.refuses(("topic", 1), header(6))
    firsts.stored(PLACE, 7)
    assert not firsts.refuses(PLACE, header(6))


def test_a_later_batch_that_is_refused_does_not_take_the_place_of_the_first() -> None:
    firsts = FirstBatches()
    for sequence in (5, 6, 7):
        firsts.came(PLACE, header(sequence))
    assert firsts.refuses(PLACE, header(6))
    firsts.came(PLACE, header(4))
    assert firsts.refuses(PLACE, header(5))


def test_sequences_go_on_at_zero() -> None:
    firsts = FirstBatches()
    firsts.came(PLACE, header(MAX_SEQUENCE))
    assert firsts.refuses(PLACE, header(0))
    firsts.came(PLACE, header(MAX_SEQUENCE - 1))
    assert firsts.refuses(PLACE, header(0))
    firsts = FirstBatches()
    firsts.came(PLACE, header(0))
    assert not firsts.refuses(PLACE, header(MAX_SEQUENCE))


def test_a_first_batch_that_is_refused_again_counts_anew() -> None:
    firsts = FirstBatches()
    for _ in range(3):
        firsts.came(PLACE, header(5))
        assert [firsts.refuses(PLACE, header(6)) for _ in range(MOST_OUT_OF_TURN)] == [
            True
        ] * MOST_OUT_OF_TURN
    assert not firsts.refuses(PLACE, header(6))
    assert not firsts


def test_what_is_remembered_is_bounded() -> None:
    firsts = FirstBatches()
    for producer_id in range(MOST_REMEMBERED + 10):
        firsts.came(PLACE, header(5)._replace(producer_id=producer_id))
    assert len(firsts) == MOST_REMEMBERED
    assert not firsts.refuses(PLACE, header(6)._replace(producer_id=9))
    assert firsts.refuses(PLACE, header(6)._replace(producer_id=10))
