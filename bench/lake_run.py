"""One run of the lake benchmark: topics are written to both brokers, then read by each peer in turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.apache_kafka import ApacheKafka
from bench.brokers import Broker
from bench.kafscale_broker import Kafscale
from bench.lake_peers import KAFSCALE, Brokers, LakePeer
from bench.lake_records import Dataset, write
from bench.lake_spark import SparkProcess, SparkProcessError
from bench.lake_specs import NOOP, Cost, ReadSpec, SessionSpec
from bench.measurement import Measurement
from bench.peers import KAFKA

KAFSCALE_SETTINGS = {
    # Batches stay as the producer made them, as they do in Kafka, and segments as they were flushed.
    "KAFSCALE_COMPRESSION_CODEC": "producer",
    "KAFSCALE_MERGE_BYTES_PER_SEC": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePlan:
    """The reads: every data set into every sink by every peer, with each number of cores."""

    datasets: tuple[Dataset, ...]
    tiny: Dataset
    sinks: tuple[str, ...]
    cores: tuple[int, ...]
    rounds: int
    warm_ups: int
    memory: str
    kafka_options: Mapping[str, str]
    kafscale_options: Mapping[str, str]


class LakeRun:
    """Measurements are collected in `measured`."""

    def __init__(
        self, plan: LakePlan, peers: Sequence[LakePeer], work_dir: Path, progress: Callable[[str], None]
    ) -> None:
        self.measured: list[Measurement] = []
        self._plan = plan
        self._peers = peers
        self._work_dir = work_dir
        self._progress = progress

    def run(self, jars: tuple[str, ...]) -> None:
        """Raises `BrokerError`, `LibrdkafkaError`, `SparkProcessError`."""
        with ExitStack() as stack:
            brokers = Brokers(
                kafka=_kept(stack, ApacheKafka(self._work_dir)),
                kafscale=_kept(stack, Kafscale(self._work_dir, KAFSCALE_SETTINGS)),
            )
            brokers.kafscale.start()
            self._write_all(brokers.kafscale)
            brokers.kafscale.stop()
            brokers.kafka.start()
            self._write_all(brokers.kafka)
            for cores in self._plan.cores:
                folder = self._work_dir / f"spark-{cores}"
                spec = SessionSpec(cores=cores, folder=str(folder), jars=jars, memory=self._plan.memory)
                with SparkProcess(spec) as spark:
                    self._read_all(_Session(self._plan, spark, brokers), cores)

    def _write_all(self, broker: Broker) -> None:
        for dataset in (*self._plan.datasets, self._plan.tiny):
            self._progress(f"writing {dataset.records:,} records to {type(broker).__name__}: {dataset.topic}")
            write(dataset, broker)

    def _read_all(self, session: "_Session", cores: int) -> None:
        for dataset in self._plan.datasets:
            session.compare(dataset, self._peers)
        for sink in self._plan.sinks:
            for dataset in self._plan.datasets:
                workload = f"read {dataset.title}, {sink}, local[{cores}]"
                for peer, number, cost in self._rounds(session, dataset, sink):
                    self._note(workload, peer, number, cost, _per_row(cost, dataset.records))
        tiny = self._plan.tiny
        workload = f"read {tiny.records} records, {NOOP}, local[{cores}]"
        for peer, number, cost in self._rounds(session, tiny, NOOP):
            self._note(workload, peer, number, cost, {"s": cost.seconds, "CPU s": cost.spark_seconds})

    def _rounds(
        self, session: "_Session", dataset: Dataset, sink: str
    ) -> Iterator[tuple[LakePeer, int, Cost]]:
        """Warm-ups, then rounds: forward, backward, forward, so that no peer always follows the same one."""
        peers = list(self._peers)
        for _ in range(self._plan.warm_ups):
            for peer in peers:
                session.read(peer, dataset, sink)
        for number in range(1, self._plan.rounds + 1):
            for peer in peers:
                yield peer, number, session.read(peer, dataset, sink)
            peers.reverse()

    def _note(
        self, workload: str, peer: LakePeer, number: int, cost: Cost, values: Mapping[str, float]
    ) -> None:
        for metric, value in values.items():
            self.measured.append(
                Measurement(peer=peer.name, workload=workload, metric=metric, value=value, repeat=number)
            )
        self._progress(
            f"{workload}, {peer.name}: {cost.seconds:.2f} s, CPU {cost.jvm_seconds:.2f} s JVM, "
            f"{cost.python_seconds:.2f} s Python, {cost.broker_seconds:.2f} s broker"
        )


class _Session:
    """One Spark session over the written topics."""

    def __init__(self, plan: LakePlan, spark: SparkProcess, brokers: Brokers) -> None:
        self._spark = spark
        self._brokers = brokers
        self._options = {KAFKA: plan.kafka_options, KAFSCALE: plan.kafscale_options}

    def read(self, peer: LakePeer, dataset: Dataset, sink: str) -> Cost:
        return self._spark.read(self._spec(peer, dataset, sink))

    def compare(self, dataset: Dataset, peers: Sequence[LakePeer]) -> None:
        """All readers of the same topic must return the same records. Raises `SparkProcessError`."""
        digests = {
            peer.name: self._spark.digest(self._spec(peer, dataset, NOOP))
            for peer in peers
            if peer.name in self._options
        }
        wrong = [name for name, digest in digests.items() if digest.rows != dataset.records]
        if wrong or len({digest.hash for digest in digests.values()}) > 1:
            raise SparkProcessError(f"{dataset.topic} has {dataset.records} records; read were {digests}")

    def _spec(self, peer: LakePeer, dataset: Dataset, sink: str) -> ReadSpec:
        return peer.read_spec(self._brokers, dataset, sink, self._options.get(peer.name))


def _per_row(cost: Cost, rows: int) -> dict[str, float]:
    microseconds = 1e6 / rows
    return {
        "rows per CPU second": rows / cost.spark_seconds,
        "rows/s": rows / cost.seconds,
        "CPU us/row": cost.spark_seconds * microseconds,
        "CPU us/row, JVM": cost.jvm_seconds * microseconds,
        "CPU us/row, Python": cost.python_seconds * microseconds,
        "CPU us/row, broker, not counted": cost.broker_seconds * microseconds,
        "tasks": cost.tasks,
    }


B = TypeVar("B", bound=Broker)


def _kept(stack: ExitStack, broker: B) -> B:
    stack.callback(broker.remove)
    return broker
