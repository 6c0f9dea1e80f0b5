"""Refusals that wait until it is known who leads."""

import asyncio
import uuid

from kafscale.cluster.leadership import Claimed
from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_leader_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import LeaderRecord, TopicRecord
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.leader_changes import LeaderChanges
from tests.support import wire
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.virtual_time import run_virtually

MYSELF, OTHER = 1, 2
TOPIC = TopicRecord(name="orders", topic_id=uuid.UUID(int=7), partition_count=2)


def view_with_topic() -> ClusterView:
    view = ClusterView("cluster")
    topic = KeyValue(key=keys.topic("orders"), value=encode_topic_record(TOPIC), mod_revision=1)
    view.apply(keys.TOPICS, Snapshot(items=(topic,), revision=1))
    return view


def led_by(view: ClusterView, broker_id: int | None, revision: int) -> None:
    key = keys.leader("orders", 0)
    change: KeyValue | Delete = Delete(key)
    if broker_id is not None:
        value = encode_leader_record(LeaderRecord(broker_id=broker_id, leader_epoch=revision))
        change = KeyValue(key=key, value=value, mod_revision=revision)
    view.apply(keys.LEADERS, Changes(puts_and_deletes=(change,), revision=revision))


class Waiting:
    """Calls and their times, in virtual seconds."""

    def __init__(self, view: ClusterView) -> None:
        self.changes = LeaderChanges(view, MYSELF, max_wait_sec=0.5)
        self.refused: list[tuple[int, float]] = []

    def ask(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.changes.when_known("orders", 0, lambda: self.refused.append((number, loop.time())))


def test_it_refuses_at_once_when_another_broker_leads() -> None:
    async def run() -> None:
        view = view_with_topic()
        led_by(view, OTHER, 1)
        waiting = Waiting(view)
        waiting.ask(1)
        assert waiting.refused == [(1, 0.0)]

    run_virtually(run())


def test_it_waits_until_another_broker_leads() -> None:
    async def run() -> None:
        view = view_with_topic()
        led_by(view, MYSELF, 1)
        waiting = Waiting(view)
        waiting.ask(1)
        await asyncio.sleep(0.1)
        led_by(view, None, 2)
        waiting.ask(2)
        await asyncio.sleep(0.1)
        assert waiting.refused == []
        led_by(view, OTHER, 3)
        await asyncio.sleep(0.001)
        assert waiting.refused == [(1, 0.2), (2, 0.2)]

    run_virtually(run())


def test_it_does_not_wait_for_long() -> None:
    async def run() -> None:
        waiting = Waiting(view_with_topic())
        waiting.ask(1)
        await asyncio.sleep(0.4)
        waiting.ask(2)
        await asyncio.sleep(5)
        assert waiting.refused == [(1, 0.5), (2, 0.5)]
        waiting.ask(3)
        await asyncio.sleep(5)
        assert waiting.refused[2:] == [(3, 5.9)]

    run_virtually(run())


def test_a_topic_that_is_deleted_meanwhile_ends_the_wait() -> None:
    async def run() -> None:
        view = view_with_topic()
        waiting = Waiting(view)
        waiting.ask(1)
        await asyncio.sleep(0.1)
        gone = Changes(puts_and_deletes=(Delete(keys.topic("orders")),), revision=5)
        view.apply(keys.TOPICS, gone)
        await asyncio.sleep(0.001)
        assert waiting.refused == [(1, 0.1)]

    run_virtually(run())


def test_closing_refuses_what_waits() -> None:
    async def run() -> None:
        waiting = Waiting(view_with_topic())
        waiting.ask(1)
        await asyncio.sleep(0.1)
        await waiting.changes.close()
        assert waiting.refused == [(1, 0.1)]

    run_virtually(run())


@on_uvloop
async def test_produce_waits_for_a_claim_in_progress() -> None:
    """Others may see the leader's key, and send their clients, before the claimant has its answer."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        partition, logs = broker.partition("topic"), broker.process.serving.logs
        logs._led.remove(partition)
        claimed = Claimed("topic", 0, partition.record, partition.led_since_revision)
        with logs.claims.making([("topic", 0)]):
            await client.send_produce("topic", {0: wire.batch([b"early"])})
            await until(lambda: logs.claims.is_waited_for(("topic", 0)), "produce waits")
            logs.lead(claimed)
            assert (await client.receive_produce())[1][0].error_code == ErrorCode.NONE


@on_uvloop
async def test_produce_does_not_wait_for_a_claim_that_was_lost() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        partition, logs = broker.partition("topic"), broker.process.serving.logs
        logs._led.remove(partition)
        with logs.claims.making([("topic", 0)]):
            await client.send_produce("topic", {0: wire.batch([b"in vain"])})
            await until(lambda: logs.claims.is_waited_for(("topic", 0)), "produce waits")
        answer = (await client.receive_produce())[1][0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        logs.lead(Claimed("topic", 0, partition.record, partition.led_since_revision))
