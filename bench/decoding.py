"""Decoding of values, with some that do not decode among them: `python -m bench.decoding`.

One process, no Spark: the CPU time of a value, decoded in columns as a task decodes them.
"""

import io
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import types as st

from spark_jobs.decoding.avro.column import AvroFormat
from spark_jobs.decoding.avro.schemas import read_schemas
from spark_jobs.decoding.columns import ColumnFormat
from spark_jobs.decoding.json.column import JsonFormat
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.protobuf.column import ProtobufFormat

_COLUMN_ROWS = 10_000
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "email", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "active", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}

_JSON = (
    st.StructType()
    .add("id", "long")
    .add("name", "string")
    .add("email", "string")
    .add("at", "timestamp")
    .add("price", "double")
    .add("count", "integer")
    .add("active", "boolean")
    .add("tags", st.ArrayType(st.StringType()))
    .add("address", st.StructType().add("street", "string").add("city", "string").add("zip", "string"))
    .add("note", "string")
)

Bad = Callable[[random.Random, bytes], bytes]


def _order(number: int) -> dict[str, object]:
    return {
        "id": number,
        "name": f"customer {number}",
        "email": f"c{number}@example.com",
        "at": "2024-05-31T10:00:00.123Z",
        "price": number / 7,
        "count": number % 100,
        "active": number % 2 == 0,
        "tags": ["a", "b"],
        "address": {"street": "Main Street 1", "city": "Springfield", "zip": "12345"},
        "note": None,
    }


def _json_values(count: int) -> list[bytes]:
    return [json.dumps(_order(number)).encode() for number in range(count)]


def _bad_json(chance: random.Random, good: bytes) -> bytes:
    """No JSON, a text for a number, a number for a text's number, a date that is none."""
    return chance.choice(
        (
            good[: len(good) // 2],
            good.replace(b'"id": ', b'"id": "x", "ix": '),
            good.replace(b'"count": ', b'"count": 1.5, "c": '),
            good.replace(b"2024-05-31", b"2024-05-xx"),
            b"not json",
        )
    )


def _avro_values(count: int) -> list[bytes]:
    schema = fastavro.parse_schema(_AVRO)
    values = []
    for number in range(count):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, _order(number))
        values.append(written.getvalue())
    return values


def _bad_bytes(chance: random.Random, good: bytes) -> bytes:
    return good[: chance.randrange(1, len(good) - 1)]


def _protobuf_values(count: int) -> tuple[list[bytes], bytes]:
    proto = descriptor_pb2.FileDescriptorProto(name="order.proto", package="bench", syntax="proto3")
    message = proto.message_type.add(name="Order")
    kinds = {"id": 3, "name": 9, "email": 9, "price": 1, "count": 5, "active": 8, "tags": 9}
    for place, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=place, type=kind, label=3 if name == "tags" else 1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Order"))
    values = [
        order(**{name: _order(number)[name] for name in kinds}).SerializeToString() for number in range(count)
    ]
    return values, descriptor_pb2.FileDescriptorSet(file=[proto]).SerializeToString()


def _with_bad(values: Sequence[bytes], share: float, bad: Bad) -> list[bytes]:
    chance = random.Random(7)
    return [bad(chance, one) if chance.random() < share else one for one in values]


def _cost_us(column_format: ColumnFormat, values: list[bytes]) -> tuple[float, float]:
    """Microseconds of CPU per value, the best of three rounds; the share of values that did not decode."""
    columns = [
        pa.array(values[at : at + _COLUMN_ROWS], pa.binary()) for at in range(0, len(values), _COLUMN_ROWS)
    ]
    best, undecoded = float("inf"), 0
    for _ in range(3):
        began = time.process_time()
        decoder = column_format.open()
        undecoded = sum(error is not None for column in columns for error in decoder.decode(column).errors)
        best = min(best, time.process_time() - began)
    return best / len(values) * 1e6, undecoded / len(values)


@click.command(help="Measure decoding with values that do not decode among others. Asserts nothing.")
@click.option("--values", "count", default=50_000, show_default=True, type=click.IntRange(min=1000))
@click.option("--share", "shares", multiple=True, default=(0.0, 0.001, 0.01, 0.1), show_default=True)
def main(count: int, shares: tuple[float, ...]) -> None:
    """Print a table."""
    protobuf, descriptor_set = _protobuf_values(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.avsc"
        path.write_text(json.dumps(_AVRO))
        schemas = read_schemas(None, (str(path),))
    rows: list[tuple[str, ColumnFormat, list[bytes], Bad]] = [
        (
            "json, schema",
            JsonFormat(data_type=_JSON, inferred=False, framing=Framing.AUTO),
            _json_values(count),
            _bad_json,
        ),
        (
            "json, inferred",
            JsonFormat(data_type=_JSON, inferred=True, framing=Framing.AUTO),
            _json_values(count),
            _bad_json,
        ),
        ("avro", AvroFormat(schemas=schemas, framing=Framing.AUTO), _avro_values(count), _bad_bytes),
        (
            "protobuf",
            ProtobufFormat(descriptor_set=descriptor_set, message="bench.Order", framing=Framing.AUTO),
            protobuf,
            _bad_bytes,
        ),
    ]
    click.echo(f"{'us of CPU per value':20}" + "".join(f"{share:>12.1%}" for share in shares))
    for name, column_format, values, bad in rows:
        costs = [_cost_us(column_format, _with_bad(values, share, bad)) for share in shares]
        click.echo(f"{name:20}" + "".join(f"{cost:>12.2f}" for cost, _ in costs))
        click.echo(f"{'  not decoded':20}" + "".join(f"{share:>12.2%}" for _, share in costs))


if __name__ == "__main__":
    main()
