"""Invented producer ids: as many as are remembered cost memory and checkpoints, and no more."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.log import producer_state
from kafscale.log.producer_state import MOST_PRODUCERS
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.in_process_broker import Client, in_process_broker
from tests.support.nightly import by_day
from tests.support.on_uvloop import on_uvloop
from tests.support.watcher import GIVE_UP_SEC, TOPIC, watching

INVENTED = by_day(8_000, by_night=20_000)  # more than a partition remembers
AT_ONCE = 500
FEW = 50
# One remembered batch of each producer, beside the references of segments. All that are invented take 700 kB.
MOST_CHECKPOINT_BYTES = MOST_PRODUCERS * 35 + 200_000


def batch(producer_id: int, sequence: int = 0) -> bytes:
    return wire.batch([b"x"], producer_id=producer_id, producer_epoch=0, sequence=sequence)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=50) as running:
        yield running


def test_invented_producers_cost_no_more_than_their_bound(broker: KafscaleBroker) -> None:
    """A producer that writes among them is not forgotten: its last batch is known again."""
    with watching(broker) as watcher, wire.connect(broker, GIVE_UP_SEC) as attacker:
        with wire.connect(broker, GIVE_UP_SEC) as honest:
            offsets = []
            for sequence, first in enumerate(range(1000, 1000 + INVENTED, AT_ONCE)):
                offsets.append(wire.produce(honest, TOPIC, 0, batch(7, sequence)).base_offset)
                for invented in range(first, first + AT_ONCE):
                    attacker.send(wire.produce_request(TOPIC, {0: batch(invented)}), wire.PRODUCE_VERSION)
                answers = [wire.receive_produce(attacker)[1].error_code for _ in range(AT_ONCE)]
                assert set(answers) == {ErrorCode.NONE}
            again = wire.produce(honest, TOPIC, 0, batch(7, len(offsets) - 1))
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, offsets[-1])
        watcher.wait_for_rounds()
    sizes = [file.stat().st_size for file in broker.data_folder.rglob("*.ckpt")]
    print(f"{len(sizes)} checkpoints of {sum(sizes)} bytes, the largest {max(sizes)}")
    assert max(sizes) < MOST_CHECKPOINT_BYTES


async def answers_of(client: Client, count: int) -> list[int]:
    return [(await client.receive_produce())[1][0].error_code for _ in range(count)]


@on_uvloop
async def test_producers_that_all_wait_leave_no_room_until_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused so that clients send again, and nothing later of the same producer comes before that."""
    monkeypatch.setattr(producer_state, "MOST_PRODUCERS", FEW)
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        producers = itertools.count(1)
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            for _ in range(FEW):
                await client.send_produce(topic, {0: batch(next(producers))})
            await hold.reached()
            late = next(producers)
            answer = await other.produce(topic, 0, batch(late))
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            await client.send_produce(topic, {0: batch(1, sequence=1)})
            await other.send_produce(topic, {0: wire.batch([b"of no producer"])})
        assert await answers_of(client, FEW + 1) == [ErrorCode.NONE] * (FEW + 1)
        assert await answers_of(other, 1) == [ErrorCode.NONE]
        answer = await other.produce(topic, 0, batch(late, sequence=1))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for sequence in range(2):
            assert (await other.produce(topic, 0, batch(late, sequence))).error_code == ErrorCode.NONE
