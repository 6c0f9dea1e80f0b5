"""One run of the lake benchmark: topics are written to both brokers, then read by each peer in turn."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.brokers import KAFKA, ApacheKafka, Broker, Kafscale
from bench.lake_peers import KAFSCALE, Brokers, LakePeer
from bench.lake_records import Dataset, write
from bench.lake_spark import SparkProcess, SparkProcessError
from bench.lake_specs import NOOP, Cost, SessionSpec
from bench.measurement import Measurement

KAFSCALE_SETTINGS = {
    # Batches stay as the producer made them, as they do in Kafka, and segments as they were flushed.
    "KAFSCALE_COMPRESSION_CODEC": "producer",
    "KAFSCALE_MERGE_BYTES_PER_SEC": "0",
}
_MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePlan:
    """What is read: every data set into every sink by every peer, with each number of cores."""

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
    """Measurements gather in `measured`."""

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
                    _Session(self, spark, brokers, cores).run()

    def _write_all(self, broker: Broker) -> None:
        for dataset in (*self._plan.datasets, self._plan.tiny):
            self._progress(f"writing {dataset.records:,} records to {type(broker).__name__}: {dataset.topic}")
            write(dataset, broker)


class _Session:
    """The reads of one Spark session."""

    def __init__(self, run: LakeRun, spark: SparkProcess, brokers: Brokers, cores: int) -> None:
        self._run = run
        self._plan = run._plan
        self._spark = spark
        self._brokers = brokers
        self._cores = cores

    def run(self) -> None:
        for dataset in self._plan.datasets:
            self._compare(dataset)
        for sink in self._plan.sinks:
            for dataset in self._plan.datasets:
                self._read_by_all(dataset, sink)
        self._read_by_all(self._plan.tiny, NOOP)

    def _read_by_all(self, dataset: Dataset, sink: str) -> None:
        """Warm-ups, then rounds: forth, back, forth, so that none is always the one after another."""
        peers = list(self._run._peers)
        for _ in range(self._plan.warm_ups):
            for peer in peers:
                self._read(peer, dataset, sink)
        for number in range(1, self._plan.rounds + 1):
            for peer in peers:
                cost = self._read(peer, dataset, sink)
                self._note(peer, dataset, sink, number, cost)
            peers.reverse()

    def _read(self, peer: LakePeer, dataset: Dataset, sink: str) -> Cost:
        return self._spark.read(peer.read_spec(self._brokers, dataset, sink, self._more(peer)))

    def _more(self, peer: LakePeer) -> Mapping[str, str]:
        more = {KAFKA: self._plan.kafka_options, KAFSCALE: self._plan.kafscale_options}
        return more.get(peer.name, {})

    def _compare(self, dataset: Dataset) -> None:
        """Both must give the same records; it warms up both as well."""
        digests = {
            peer.name: self._spark.digest(peer.read_spec(self._brokers, dataset, NOOP, self._more(peer)))
            for peer in self._run._peers
            if peer.name in (KAFKA, KAFSCALE)
        }
        wrong = [name for name, digest in digests.items() if digest.rows != dataset.records]
        if wrong or len({digest.hash for digest in digests.values()}) > 1:
            raise SparkProcessError(f"{dataset.topic} has {dataset.records} records; read were {digests}")

    def _note(self, peer: LakePeer, dataset: Dataset, sink: str, number: int, cost: Cost) -> None:
        workload = f"read {dataset.title}, {sink}, local[{self._cores}]"
        spark_seconds = cost.jvm_seconds + cost.python_seconds
        per_row = _MICROSECONDS / dataset.records
        if dataset is self._plan.tiny:
            workload = f"read {dataset.records} records, {sink}, local[{self._cores}]"
            values = {"s": cost.seconds, "CPU s": spark_seconds}
        else:
            values = {
                "rows per CPU second": dataset.records / spark_seconds,
                "rows/s": dataset.records / cost.seconds,
                "CPU us/row": spark_seconds * per_row,
                "CPU us/row, JVM": cost.jvm_seconds * per_row,
                "CPU us/row, Python": cost.python_seconds * per_row,
                "CPU us/row, broker, not counted": cost.broker_seconds * per_row,
                "tasks": cost.tasks,
            }
        for metric, value in values.items():
            self._run.measured.append(
                Measurement(peer=peer.name, workload=workload, metric=metric, value=value, repeat=number)
            )
        self._run._progress(
            f"{workload}, {peer.name}: {cost.seconds:.2f} s, CPU {cost.jvm_seconds:.2f} s JVM, "
            f"{cost.python_seconds:.2f} s Python, {cost.broker_seconds:.2f} s broker"
        )


B = TypeVar("B", bound=Broker)


def _kept(stack: ExitStack, broker: B) -> B:
    stack.callback(broker.remove)
    return broker
