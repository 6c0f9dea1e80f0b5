"""The columns of the report: the brokers that are measured, and their settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.apache_kafka import ApacheKafka, kafka_of_share_groups
from bench.brokers import Broker
from bench.kafscale_broker import Kafscale
from bench.noop_broker import NoOp

KAFKA = "kafka"
NOOP = "noop"
DEFAULT_PEERS = ("kafscale", "kafscale-producer", KAFKA, NOOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A column of the report: a broker with given settings.

    `settings`: of Kafscale. `other`: another broker; `of_share_groups`: the one in its place where share groups are
    measured.
    """

    name: str
    describes: str
    other: Callable[[Path], Broker] | None = field(default=None, repr=False)
    of_share_groups: Callable[[Path], Broker] | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    with_tls: bool = False

    @property
    def is_kafscale(self) -> bool:
        return self.other is None

    @property
    def speaks_kafka(self) -> bool:
        """True if clients can use it; otherwise it answers prebuilt frames only."""
        return self.name != NOOP

    def make(self, work_dir: Path, stores: Mapping[str, str] | None = None) -> Broker:
        """A broker on a fresh data folder, not started. `stores`: settings of Kafscale's stores, None: embedded."""
        if self.other is not None:
            return self.other(work_dir)
        return Kafscale(work_dir, {**self.settings, **(stores or {})}, with_tls=self.with_tls)


_COLUMNS = (
    Peer(
        name=KAFKA,
        other=ApacheKafka,
        of_share_groups=kafka_of_share_groups,
        describes="Apache Kafka from Maven, settings as shipped; for share groups 4.2.0",
    ),
    Peer(name="kafscale", describes="nothing set"),
    Peer(
        name="kafscale-flush0",
        settings={"KAFSCALE_FLUSH_INTERVAL_MS": "0"},
        describes="KAFSCALE_FLUSH_INTERVAL_MS=0",
    ),
    Peer(
        name="kafscale-producer",
        settings={"KAFSCALE_COMPRESSION_CODEC": "producer"},
        describes="KAFSCALE_COMPRESSION_CODEC=producer: batches stay as they come",
    ),
    Peer(name="kafscale-tls", with_tls=True, describes="nothing set, drivers by TLS 1.3"),
    Peer(
        name="kafscale-producer-tls",
        settings={"KAFSCALE_COMPRESSION_CODEC": "producer"},
        with_tls=True,
        describes="KAFSCALE_COMPRESSION_CODEC=producer, drivers by TLS 1.3",
    ),
    Peer(
        name="kafka-tls",
        other=partial(ApacheKafka, with_tls=True),
        describes="Apache Kafka from Maven, settings as shipped, drivers by TLS 1.3",
    ),
    Peer(
        name=NOOP,
        other=NoOp,
        describes="no-op server on the same event loop: the ceiling for prebuilt frames",
    ),
)
PEERS = {peer.name: peer for peer in _COLUMNS}
