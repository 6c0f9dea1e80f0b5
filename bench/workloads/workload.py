"""A workload: a named group of measurements of one peer at a time."""

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
    """The context of a workload: the peer, the amounts, and the folder for brokers' data."""

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
    """All peers but the ceiling, for workloads of real clients."""
    return peer.speaks_kafka


def any_peer(peer: Peer) -> bool:
    """All peers, for workloads of prebuilt frames, which the ceiling answers, too."""
    return True


def only_kafscale(peer: Peer) -> bool:
    """The peers with such stores, for workloads that need them."""
    return peer.is_kafscale


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`seconds` is the approximate duration for one peer once, with the brokers' starts and stops.

    `limited_by`: the limit of the load generator, if the broker is not the limit.
    """

    name: str
    describes: str
    run: Callable[[Stage], Values]
    fits: Callable[[Peer], bool]
    seconds: Callable[[Plan], float]
    limited_by: str
