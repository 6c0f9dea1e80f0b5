"""A Bytewax dataflow, tested with a real broker: `pytest examples/testing/test_bytewax.py`."""

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from kafscale.testing import SharedKafka


def dataflow(bootstrap: str, source: str, sink: str) -> Dataflow:
    """Writes values in capitals: in your project this is the code under test."""
    flow = Dataflow("capitals")
    # `tail=False` ends with the last record that is there.
    records = op.input("in", flow, KafkaSource([bootstrap], [source], tail=False))
    capitals = op.map("capitals", records, lambda record: KafkaSinkMessage(record.key, record.value.upper()))
    kop.output("out", capitals, brokers=[bootstrap], topic=sink)
    return flow


def test_values_come_out_in_capitals(kafka: SharedKafka) -> None:
    source, sink = kafka.topic("source", partitions=2), kafka.topic("sink")
    for value in ("one", "two", "three"):
        kafka.produce(source, value, key=value)
    run_main(dataflow(kafka.bootstrap, source, sink))
    assert sorted(record.value or b"" for record in kafka.records(sink)) == [b"ONE", b"THREE", b"TWO"]
