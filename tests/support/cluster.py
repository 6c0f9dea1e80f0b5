"""Several brokers on one etcd and one bucket: started, stopped, killed and paused one by one."""

import contextlib
import functools
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka.protocol.admin import CreateTopicsResponse

from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.group_apis import find_coordinator
from tests.support.ledger import Place, Record, Sent
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.support.topics import CREATE_TOPICS_VERSION, create_topics_request, describe_topic
from tests.support.waiting import PATIENCE_SEC, wait_until

START_TIMEOUT_S = PATIENCE_SEC
LINGER_MS = 800  # enough for clients whose heartbeats are frequent, as they are in tests
LEADERS_TIMEOUT_S = PATIENCE_SEC
CALL_TIMEOUT_S = 5.0  # for one connection that reads the cluster's state
AWAY = (
    OSError,
    wire.ConnectionEndedError,
)  # errors that such a connection meets at a broker that starts or stops


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStores:
    """The addresses of a cluster's etcd and bucket; `s3_endpoint` may be a proxy's."""

    etcd_endpoints: Sequence[str]
    s3_endpoint: str
    s3_bucket: str
    s3_access_key: str
    s3_secret_key: str
    s3_region: str = REGION

    @classmethod
    def of(
        cls, etcd_endpoints: Sequence[str], s3: S3Server, *, s3_endpoint: str | None = None
    ) -> "ClusterStores":
        """These members of etcd and the server's bucket; `s3_endpoint` stands for a proxy before the server."""
        return cls(
            etcd_endpoints=etcd_endpoints,
            s3_endpoint=s3_endpoint or s3.endpoint,
            s3_bucket=s3.bucket,
            s3_access_key=ACCESS_KEY,
            s3_secret_key=SECRET_KEY,
        )

    def settings(self) -> dict[str, object]:
        """The settings of a broker for these stores."""
        return {
            "etcd_endpoints": ",".join(self.etcd_endpoints),
            "s3_endpoint": self.s3_endpoint,
            "s3_bucket": self.s3_bucket,
            "s3_access_key": self.s3_access_key,
            "s3_secret_key": self.s3_secret_key,
            "s3_region": self.s3_region,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Further settings of the clients that a cluster's tests run: librdkafka's, and of Java producers."""

    writer: Mapping[str, Any] = field(default_factory=dict)
    reader: Mapping[str, Any] = field(default_factory=dict)
    java_writer: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """Brokers 1 to `brokers`, each with ports that stay its own. `settings` are those of all brokers.

    `of_broker`: further settings of one broker, by its id. Without `stores` there can be one broker only, on its
    embedded stores. `make_broker`: takes the arguments of `KafscaleBroker`.
    """

    def __init__(
        self,
        folder: Path,
        stores: ClusterStores | None,
        *,
        brokers: int = 3,
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
        make_broker: Callable[..., KafscaleBroker] = KafscaleBroker,
        **settings: object,
    ) -> None:
        assert stores is not None or brokers == 1, "embedded stores are for one broker"
        shared = {} if stores is None else stores.settings()
        self.brokers: dict[int, KafscaleBroker] = {}
        self._paused: set[int] = set()
        for broker_id in range(1, brokers + 1):
            merged = {
                **shared,
                "shutdown_linger_ms": LINGER_MS,
                **settings,
                **(of_broker or {}).get(broker_id, {}),
            }
            self.brokers[broker_id] = make_broker(
                folder / f"broker-{broker_id}", f"broker-{broker_id}", broker_id=broker_id, **merged
            )
        self._running: set[int] = set()
        self.clients = ClientSettings()

    @property
    def bootstrap(self) -> str:
        """All brokers, stopped ones included."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that were started and neither stopped nor killed since."""
        return sorted(self._running)

    @property
    def live(self) -> list[int]:
        """The running ones that are not paused."""
        return sorted(self._running - self._paused)

    # --- brokers start and stop

    def start(self, *ids: int) -> None:
        """Start these, or all, at once and wait until they are ready."""
        started = ids or tuple(self.brokers)
        self.launch(*started)
        self.wait_until_ready(started)

    def launch(self, *ids: int) -> None:
        """Start these without waiting."""
        for broker_id in ids:
            self.brokers[broker_id].launch_only()
            self._running.add(broker_id)

    def wait_until_ready(
        self, ids: Collection[int] | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Wait until these, or all live ones, are ready."""
        for broker_id in self.live if ids is None else ids:
            broker = self.brokers[broker_id]
            wait_until(broker.ready, f"{broker.name} is ready", timeout_s)

    def stop(self, broker_id: int, timeout_s: float = PATIENCE_SEC) -> float:
        """SIGTERM; asserts a clean exit and returns the seconds it took."""
        self._running.discard(broker_id)
        return self.brokers[broker_id].stop(timeout_s)

    def kill(self, broker_id: int) -> None:
        """kill -9, also of a paused one."""
        self._running.discard(broker_id)
        self._paused.discard(broker_id)
        self.brokers[broker_id].kill9()

    def restart(self, broker_id: int) -> None:
        """Stop it cleanly, start it and wait until it is ready."""
        self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: its connections stay open and nothing moves."""
        self.brokers[broker_id].send_signal(signal.SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """SIGCONT: it continues where it was, whatever has happened meanwhile."""
        self._paused.discard(broker_id)
        self.brokers[broker_id].send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """Resume paused brokers, start stopped ones, wait until all are ready."""
        for broker_id in list(self._paused):
            self.resume(broker_id)
        self.launch(*(broker_id for broker_id in self.brokers if broker_id not in self._running))
        self.wait_until_ready()

    def check_alive(self) -> None:
        """No broker has exited by itself. Raises AssertionError with its log."""
        for broker_id in self._running:
            broker = self.brokers[broker_id]
            assert broker.exit_code is None, (
                f"{broker.name} ended by itself with exit code {broker.exit_code}\n{broker.log_tail()}"
            )

    def stop_all(self) -> None:
        """SIGTERM to all at once; asserts clean exits."""
        running = self.running
        for broker_id in running:
            if broker_id in self._paused:
                self.resume(broker_id)
            self.brokers[broker_id].send_signal(signal.SIGTERM)
        for broker_id in running:
            self._running.discard(broker_id)
            broker = self.brokers[broker_id]
            code = broker.wait_exit(PATIENCE_SEC)
            assert code == 0, f"{broker.name} ended with exit code {code} after SIGTERM\n{broker.log_tail()}"

    def close(self) -> None:
        """Kill whatever is still running."""
        for broker in self.brokers.values():
            broker.close()

    # --- the cluster's own state

    def any_live(self) -> KafscaleBroker:
        """A running broker. Raises ConnectionError, one of `AWAY`, if there is none, as between kill and start."""
        live = self.live
        if not live:
            raise ConnectionError("no broker is live")
        return self.brokers[live[0]]

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic and wait until it has its leaders, from any broker."""
        with wire.connect(self.any_live(), CALL_TIMEOUT_S * 3) as connection:
            request = create_topics_request(name, partitions, configs)
            reply = connection.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION).topics[0]
        assert reply.error_code == 0, f"creating {name}: error {reply.error_code} {reply.error_message}"
        self.wait_until_led(name)

    def leaders(self, topic: str, asked: int | None = None) -> dict[int, int]:
        """Partition -> the broker that leads it, -1 if none, from any broker's metadata."""
        broker = self.any_live() if asked is None else self.brokers[asked]
        with wire.connect(broker, CALL_TIMEOUT_S) as connection:
            described = describe_topic(connection, topic)
        return {one.partition_index: one.leader_id for one in described.partitions}

    def led_by(self, broker_id: int, topic: str) -> list[int]:
        """The topic's partitions that this broker leads, from another one's metadata."""
        return [index for index, leader in self.leaders(topic).items() if leader == broker_id]

    def wait_until_led(self, *topics: str, timeout_s: float = LEADERS_TIMEOUT_S) -> float:
        """Wait until every live broker names the same live leader of every partition, and each really leads.

        Returns the seconds that took.
        """
        began = time.monotonic()
        for topic in topics:
            wait_until(functools.partial(self._is_led, topic), f"{topic} has live leaders", timeout_s)
        return time.monotonic() - began

    def _is_led(self, topic: str) -> bool:
        self.check_alive()
        try:
            views = [self.leaders(topic, broker_id) for broker_id in self.live]
            if not views or not views[0] or any(view != views[0] for view in views):
                return False
            if not set(views[0].values()) <= set(self.live):
                return False
            return all(self._leads(leader, (topic, index)) for index, leader in views[0].items())
        except AWAY:
            return False

    def _leads(self, broker_id: int, place: Place) -> bool:
        with wire.connect(self.brokers[broker_id], CALL_TIMEOUT_S) as connection:
            return bool(wire.list_offset(connection, *place, wire.LATEST).error_code == 0)

    def coordinator(self, group: str) -> int:
        """The broker that is a group's coordinator. Raises one of `AWAY` while there is none."""
        with wire.connect(self.any_live(), CALL_TIMEOUT_S) as connection:
            found = find_coordinator(connection, [group])[group]
        if found.error_code != 0 or found.node_id not in self.brokers:
            raise ConnectionError(f"{group} has no coordinator: error {found.error_code}")
        return int(found.node_id)

    @contextlib.contextmanager
    def connected_to_coordinator(self, group: str) -> Iterator[wire.Wire]:
        """A connection to a group's coordinator. Raises one of `AWAY` while there is none."""
        with wire.connect(self.brokers[self.coordinator(group)], CALL_TIMEOUT_S) as connection:
            yield connection

    def read_all(self, place: Place, asked: int | None = None) -> list[Record]:
        """Every record of a partition, from its leader or from the given broker."""
        return [(one.offset, one.value) for one in self.read_all_sent(place, asked)]

    def read_all_sent(self, place: Place, asked: int | None = None) -> list[Sent]:
        """The same with producer ids and sequences."""
        broker_id = self._leader(place) if asked is None else asked
        with wire.connect(self.brokers[broker_id]) as connection:
            return wire.read_all_sent(connection, *place)

    def _leader(self, place: Place) -> int:
        """The broker that leads it; waits for one, since a lease may end on a machine that is busy."""
        topic, partition = place
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [self.leaders(topic).get(partition, -1)]
            return found[0] in self.brokers

        wait_until(is_led, f"{topic}-{partition} has a leader", LEADERS_TIMEOUT_S)
        return found[0]

    def log_end_offset(self, place: Place) -> int:
        """The offset from the partition's leader."""
        leader = self.brokers[self._leader(place)]
        with wire.connect(leader, CALL_TIMEOUT_S) as connection:
            answer = wire.list_offset(connection, *place, wire.LATEST)
        assert answer.error_code == 0, f"{place}: ListOffsets gave error {answer.error_code}"
        return int(answer.offset)

    def log_tails(self) -> str:
        return "\n".join(broker.log_tail() for broker in self.brokers.values())


@contextlib.contextmanager
def running_cluster(folder: Path, stores: ClusterStores | None, **settings: Any) -> Iterator[Cluster]:
    """A ready cluster; at the end its brokers must stop cleanly if they still run."""
    cluster = Cluster(folder, stores, **settings)
    try:
        cluster.start()
        yield cluster
        cluster.stop_all()
    finally:
        cluster.close()
