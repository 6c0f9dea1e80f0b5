"""What a workload is: a named group of measurements that is taken of one peer at a time."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Broker
from bench.peers import Peer
from bench.plan import Plan

Values = Generator[tuple[str, str, float], None, None]
"""Workload (as a row of the report names it), metric, value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a workload has at hand: whom to measure, how much, and where brokers may keep their data."""

    peer: Peer
    plan: Plan
    work_dir: Path

    @contextmanager
    def broker(self, stores: Mapping[str, str] | None = None) -> Iterator[Broker]:
        """A broker on a fresh data folder, not started; stopped and removed at the end. `stores`: see `Peer`."""
        broker = self.peer.make(self.work_dir, stores)
        try:
            yield broker
        finally:
            broker.remove()

    @contextmanager
    def running_broker(self, stores: Mapping[str, str] | None = None) -> Iterator[Broker]:
        """The same, ready for clients."""
        with self.broker(stores) as broker:
            broker.start()
            yield broker


def clients_can_use(peer: Peer) -> bool:
    """For workloads of real clients: all peers but the ceiling."""
    return peer.speaks_kafka


def any_peer(peer: Peer) -> bool:
    """For workloads of prebuilt frames, which the ceiling answers too."""
    return True


def only_kafscale(peer: Peer) -> bool:
    """For workloads of stores that the others do not have."""
    return peer.is_kafscale


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`seconds` is about how long it takes for one peer once, with the brokers' starts and stops.

    `limited_by` says what holds the load generator back, when the broker does not.
    """

    name: str
    describes: str
    run: Callable[[Stage], Values]
    fits: Callable[[Peer], bool]
    seconds: Callable[[Plan], float]
    limited_by: str
