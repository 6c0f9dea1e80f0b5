"""A broker for tests, as a plain class: in memory, on a thread of its own."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from kafscale.testing.home import Home
from kafscale.testing.node import Node
from kafscale.testing.orders import OrderedFaults, Troubles
from kafscale.testing.records import Headers, Record, RecordMetadata, Text
from kafscale.testing.settings import settings_for_test

P = ParamSpec("P")
T = TypeVar("T")

_numbers = itertools.count()


def new_home(name: str, settings: Sequence[Mapping[str, Any]], *, serves_metrics: bool) -> Home:
    """The home of as many brokers as there are sets of settings."""
    checked = [settings_for_test(given) for given in settings]
    return Home(f"{name}-{next(_numbers)}", checked, serves_metrics=serves_metrics)


class Topics:
    """Topics and records without a client; of a broker and of a cluster alike.

    Each method blocks until it is done. `aio` has the same ones to be awaited in the test's own event loop.
    """

    _home: Home

    @property
    def clock(self) -> Clock:
        """The clock of its brokers, which a test moves."""
        return Clock(self._home)

    @property
    def aio(self) -> AsyncTopics:
        """The same methods as coroutines, for tests with an event loop of their own."""
        return AsyncTopics(self._home)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic and return its name, once every partition has a leader.

        `configs`: as Kafka names them, such as `{"retention.ms": 1000}`. Raises `RequestError`.
        """
        return self._call(self._home.create_topic(name, partitions, configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records; returns once the name is free. Raises `RequestError`."""
        self._call(self._home.delete_topic(name))

    def topics(self) -> list[str]:
        """The names of all topics, in order."""
        return self._call(self._home.topics())

    def produce(
        self,
        topic: str,
        value: Text | None,
        key: Text | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Store one record and return its place; text is stored as UTF-8.

        Without `partition` the key decides, as in Kafka's producers (murmur2); without a key all partitions take
        turns. `timestamp_ms`: Unix milliseconds, by default now. Raises `RequestError`, also if there is no such
        topic: nothing is created here.
        """
        return self._call(
            self._home.produce(
                topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """All records of the topic, or of one partition, by partition and offset. Raises `RequestError`."""
        return self._call(self._home.records(topic, partition))

    def wait_for_records(self, topic: str, count: int, timeout_sec: float = 10.0) -> list[Record]:
        """The same, once there are at least so many. Raises `TimeoutError`, and `RequestError`."""
        return self._call(self._home.wait_for_records(topic, count, timeout_sec))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a consumer group has committed, by topic and partition. Raises `RequestError`."""
        return self._call(self._home.committed(group))

    def wait_until_consumed(self, topic: str, group: str, timeout_sec: float = 10.0) -> None:
        """Wait until the group has committed the end of every partition that has records.

        Raises `TimeoutError`, which says what is left, and `RequestError`.
        """
        self._call(self._home.wait_until_consumed(topic, group, timeout_sec))

    def rebalance(self, group: str) -> None:
        """Begin a rebalance of a consumer group, as when a member joins and leaves at once.

        Its members hear of it with their next heartbeat. Raises `RequestError` if it has none.
        """
        self._call(self._home.rebalance(group))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._home.thread.call(work)


class Clock:
    """The clock of the brokers: session timeouts, retention and all else that waits is over when the test says so."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def now_ms(self) -> int:
        """Unix milliseconds, as the brokers see them."""
        return self._home.thread.loop.clocks.now_ms()

    def advance(self, seconds: float | timedelta) -> None:
        """Let so much time pass; returns when all that was due in it has happened, in its order.

        Clients stay in real time: a member of a group that sends no heartbeat while its session timeout passes is
        removed. Raises `ValueError` for a time below 0 or above a hundred years.
        """
        self._home.thread.loop.advance(_seconds(seconds))

    async def advance_async(self, seconds: float | timedelta) -> None:
        """The same, to be awaited in the test's own event loop."""
        await self._home.thread.loop.advance_async(_seconds(seconds))


def _seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


class AsyncTopics:
    """See `Topics`: each method returns an awaitable, for any event loop."""

    def __init__(self, home: Home) -> None:
        def elsewhere(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Awaitable[T]]:
            @wraps(method)
            def call(*args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
                return home.thread.awaitable(method(*args, **kwargs))

            return call

        self.create_topic = elsewhere(home.create_topic)
        self.delete_topic = elsewhere(home.delete_topic)
        self.topics = elsewhere(home.topics)
        self.produce = elsewhere(home.produce)
        self.records = elsewhere(home.records)
        self.wait_for_records = elsewhere(home.wait_for_records)
        self.committed = elsewhere(home.committed)
        self.wait_until_consumed = elsewhere(home.wait_until_consumed)
        self.rebalance = elsewhere(home.rebalance)


class StartedTopics(Topics):
    """Topics of brokers that are started and stopped by these methods, or by a `with` block."""

    def start(self) -> Self:
        """Start all brokers, with empty stores; returns once they serve clients. Raises `StartupError`."""
        self._home.start()
        return self

    def stop(self) -> None:
        """Stop all of them; everything that was stored is gone. No error if they do not run."""
        self._home.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()  # Milliseconds: a thread for it would take longer.

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class KafkaBroker(StartedTopics, Troubles):
    """One Kafka broker with its stores in memory, reachable by any client at `bootstrap`.

    with KafkaBroker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

    Keywords are settings of the broker by the names in docs/settings.md, in lower case and without `KAFSCALE_`:
    `KafkaBroker(auto_create_topics=False)`. It flushes each record at once and lets the first rebalance of a group
    begin at once; all else is as in production. `metrics`: serve them over HTTP, at `metrics_url`.

    Raises `TypeError` for a keyword that is no setting, `SettingError` for a value that is not legal.
    """

    def __init__(self, *, metrics: bool = False, **settings: Any) -> None:
        self._home = new_home("kafscale-broker", [settings], serves_metrics=metrics)
        self._index = 0

    @classmethod
    def _of(cls, home: Home, index: int) -> Self:
        """One broker of a cluster."""
        broker = cls.__new__(cls)
        broker._home = home
        broker._index = index
        return broker

    @property
    def _node(self) -> Node:
        if not self._home.nodes:
            raise RuntimeError("the broker does not run: start it, or use it in a `with` block")
        return self._home.nodes[self._index]

    @property
    def _faults(self) -> OrderedFaults:
        return self._node.faults

    # --- where it is

    @property
    def bootstrap(self) -> str:
        """Its address for clients' `bootstrap.servers`: host and port."""
        return str(self._node.address)

    @property
    def host(self) -> str:
        """The host that it listens on."""
        return self._node.address.host

    @property
    def port(self) -> int:
        """The port that it listens on; it stays the same over `restart`."""
        return self._node.address.port

    @property
    def broker_id(self) -> int:
        """Its id, as clients see it."""
        return self._node.broker_id

    @property
    def metrics_url(self) -> str | None:
        """The address of its metrics, for Prometheus; None without `metrics=True`."""
        return self._node.metrics_url

    # --- what may happen to it

    def kill(self, *, lease_ends: bool = True) -> None:
        """End it as `kill -9` would: nothing more is stored, and its clients see their connections end.

        What it had acknowledged is stored and there after `restart`. Other brokers of its cluster take over what it
        led as soon as its lease has ended: at once, or with `lease_ends=False` after its time (`lease_ttl_sec`), or
        when it starts again.
        """
        self._call(self._node.kill(lease_ends=lease_ends))

    def restart(self) -> None:
        """Start it again at the same address, over the same stores; stop it before, orderly, if it runs."""
        self._call(self._home.restart(self._node))

    def fence(self) -> None:
        """End its journal, as another broker does that takes it for dead.

        It finds that out at its next flush: it refuses those records with NOT_LEADER_OR_FOLLOWER, gives up its
        lease with all that it leads, and registers again; clients send again.
        """
        self._call(self._node.fence())
