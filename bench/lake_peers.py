"""The readers of the lake benchmark: a Spark data source, and the options that name one topic to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench import lake_prepared
from bench.apache_kafka import ApacheKafka
from bench.kafscale_broker import Kafscale
from bench.lake_records import Dataset
from bench.lake_specs import ReadSpec
from bench.peers import KAFKA

KAFSCALE, PREPARED = "kafscale", lake_prepared.NAME

# Larger than any partition here: as many tasks as there are partitions, as with Spark's Kafka source.
_SPLIT_BYTES = str(1024**4)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers that were written to. Kafka's must run while it is read; the other one is stopped by then."""

    kafka: ApacheKafka
    kafscale: Kafscale


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePeer:
    """A column of the report."""

    name: str
    describes: str
    options: Callable[[Brokers, Dataset], Mapping[str, str]] = field(repr=False)

    def read_spec(
        self, brokers: Brokers, dataset: Dataset, sink: str, more: Mapping[str, str] | None = None
    ) -> ReadSpec:
        """The read of a whole topic into a sink; `more`: options on top."""
        return ReadSpec(
            source=self.name,
            options={**self.options(brokers, dataset), **(more or {})},
            sink=sink,
            broker_pid=brokers.kafka.pid if self.name == KAFKA else 0,
        )


def _kafka(brokers: Brokers, dataset: Dataset) -> Mapping[str, str]:
    return {
        "kafka.bootstrap.servers": brokers.kafka.bootstrap,
        "subscribe": dataset.topic,
        "includeHeaders": "true",
    }


def _kafscale(brokers: Brokers, dataset: Dataset) -> Mapping[str, str]:
    return {
        "dataDir": str(brokers.kafscale.data_folder),
        "subscribe": dataset.topic,
        "splitBytes": _SPLIT_BYTES,
    }


def _prepared(_: Brokers, dataset: Dataset) -> Mapping[str, str]:
    return {
        "records": str(dataset.records),
        "recordBytes": str(dataset.record_bytes),
        "partitions": str(dataset.partitions),
    }


LAKE_PEERS = {
    peer.name: peer
    for peer in (
        LakePeer(
            name=KAFSCALE,
            describes="format('kafscale') over a data folder, no broker running",
            options=_kafscale,
        ),
        LakePeer(
            name=KAFKA,
            describes="Spark's own format('kafka') over an Apache Kafka broker, its defaults",
            options=_kafka,
        ),
        LakePeer(
            name=PREPARED,
            describes="Arrow batches made once: what Spark's Python data sources cost by themselves",
            options=_prepared,
        ),
    )
}
