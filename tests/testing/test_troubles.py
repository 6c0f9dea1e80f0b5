"""Kill, restart, fence and rebalance; acknowledged records survive all of it."""

import asyncio
import socket
import threading

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer

from kafscale.groups.states import GroupState
from kafscale.testing import KafkaBroker, KafkaCluster, RequestError
from kafscale.testing.home import Home
from tests.support.waiting import PATIENCE_SEC, wait_until, wait_until_async


def _values(broker: KafkaBroker | KafkaCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_killed_broker_has_what_it_acknowledged_and_its_port() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(10):
            broker.produce("orders", str(number))
        before, address = broker.records("orders"), broker.bootstrap
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port))
        with pytest.raises(RuntimeError, match="no broker runs"):
            broker.records("orders")
        broker.restart()
        assert broker.bootstrap == address
        assert broker.records("orders") == before
        assert broker.produce("orders", "more", partition=0).offset == 5


def test_kill_stores_nothing_that_was_buffered() -> None:
    # What waits for the flush interval is not acknowledged, and is not there afterwards.
    with KafkaBroker(flush_interval_ms=3_600_000) as broker:
        broker.create_topic("orders")
        outcomes: list[str] = []

        def delivered(problem: object, message: object) -> None:
            outcomes.append("refused" if problem else "acknowledged")

        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2_000, "linger.ms": 0}
        )
        producer.produce("orders", b"lost", on_delivery=delivered)
        buffered = broker._node.process.basics.budget
        wait_until(lambda: producer.poll(0) or buffered.used_bytes > 0, "the record is in the buffer")
        broker.kill()
        broker.restart()
        assert broker.records("orders") == []
        producer.purge()
        producer.flush(PATIENCE_SEC)
        assert outcomes == ["refused"]


def test_kill_ends_connections_without_an_answer() -> None:
    with KafkaBroker() as broker, socket.create_connection((broker.host, broker.port)) as connected:
        wait_until(lambda: broker._node.process.basics.metrics.connections.current, "the client is connected")
        broker.kill()
        assert connected.recv(1) == b""


def test_nothing_of_a_killed_broker_goes_on() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        home: Home = broker._home
        broker.produce("orders", "x")
        broker.kill()

        async def tasks() -> list[str]:
            return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        assert len(home.thread.call(tasks())) == 1  # the thread's own


def test_restart_of_a_running_broker_is_orderly() -> None:
    with KafkaBroker(flush_interval_ms=200, flushes_per_sec=0) as broker:
        broker.create_topic("orders")
        acknowledged: list[int] = []
        writing = threading.Thread(target=lambda: acknowledged.append(broker.produce("orders", "x").offset))
        writing.start()
        buffered = broker._node.process.basics.budget
        wait_until(lambda: buffered.used_bytes > 0 or acknowledged, "the record has arrived")
        broker.restart()
        writing.join()
        assert acknowledged == [0]
        assert _values(broker, "orders") == [b"x"]


def test_kill_of_a_broker_that_does_not_run_is_refused() -> None:
    with KafkaBroker() as broker:
        broker.kill()
        with pytest.raises(RuntimeError, match=r"broker 0 does not run: start it with restart\(\)"):
            broker.kill()
        broker.restart()
        broker.restart()


def test_restart_keeps_the_ports_of_all_listeners() -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"
    with KafkaBroker(listeners=listeners, listener_security_protocol_map=protocols) as broker:
        before = dict(broker._node.process.listeners)
        assert len({address.port for address in before.values()}) == 2
        broker.kill()
        for address in before.values():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address.host, address.port))
        broker.restart()
        assert broker._node.process.listeners == before


def test_fenced_broker_refuses_once_and_goes_on() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "before")
        journal_id = broker._node.process.basics.registration.broker.journal_id
        broker.fence()
        # Refused with NOT_LEADER_OR_FOLLOWER, and sent again as clients do.
        broker.produce("orders", "after")
        assert broker._node.process.basics.registration.broker.journal_id != journal_id
        assert _values(broker, "orders") == [b"before", b"after"]


def test_producer_survives_kill_and_fence_without_loss() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        failed: list[object] = []
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        for number in range(60):
            producer.produce(
                "orders",
                str(number),
                on_delivery=lambda problem, _: failed.append(problem) if problem else None,
            )
            producer.poll(0)
            if number == 20:
                broker.kill()
                broker.restart()
            if number == 40:
                broker.fence()
        assert producer.flush(PATIENCE_SEC) == 0
        assert not failed
        assert _values(broker, "orders") == [str(number).encode() for number in range(60)]


async def test_rebalance_lets_members_join_again_and_lose_nothing() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=2)
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
        )
        await consumer.start()
        try:
            await broker.aio.produce("orders", "one")
            assert (await consumer.getone()).value == b"one"
            groups = broker._node.process.serving.services.groups
            group = groups.describe("billing")
            assert group is not None
            generation = group.generation
            await broker.aio.rebalance("billing")
            await broker.aio.produce("orders", "two")
            assert (await consumer.getone()).value == b"two"

            async def stable_again() -> bool:
                return group.generation > generation and group.state is GroupState.STABLE

            await wait_until_async(stable_again, "the next generation is stable")
            wait = broker.aio.wait_until_consumed("orders", "billing")
            await consumer.commit()
            await wait
            assert sum((await broker.aio.committed("billing")).values()) == 2
            assert len(group.members) == 1
        finally:
            await consumer.stop()


def test_rebalance_of_a_group_without_members_is_refused() -> None:
    with KafkaBroker() as broker, pytest.raises(RequestError, match="group 'billing' has no members"):
        broker.rebalance("billing")


def test_wait_until_consumed_says_what_is_left() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", "x", partition=1)
        with pytest.raises(
            TimeoutError, match=r"group 'billing' has not consumed .* left are partition 1: 1"
        ):
            broker.wait_until_consumed("orders", "billing", timeout_sec=0.01)


async def test_cluster_goes_on_without_a_killed_broker() -> None:
    with KafkaCluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True)
        await producer.start()
        try:
            for number in range(60):
                if number == 20:
                    cluster.brokers[0].kill()
                if number == 40:
                    cluster.brokers[0].restart()
                    cluster.brokers[1].kill()
                await producer.send_and_wait("orders", str(number).encode(), partition=number % 6)
        finally:
            await producer.stop()
        assert sorted(int(value or b"") for value in _values(cluster, "orders")) == list(range(60))


def test_killed_broker_keeps_its_lease_where_it_is_to_last() -> None:
    with KafkaCluster(2, lease_ttl_sec=3600) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.brokers[0].kill(lease_ends=False)
        view = cluster.brokers[1]._node.process.serving.view
        assert view.broker(0) is not None
        led = [index for index, leader in view.leaders("orders").items() if leader.broker_id == 0]
        assert led
        cluster.brokers[0].restart()
        for index in range(4):
            cluster.produce("orders", "x", partition=index)
