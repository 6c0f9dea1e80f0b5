"""The decoding of a topic's values by its configs: above the options, and without schemas of another format."""

from dataclasses import replace

import pytest

from kafscale.cluster.iceberg_configs import IcebergConfig, IcebergKeyFormat, IcebergValueFormat
from spark_jobs.decoding.options import KeyFormat, ValueFormat, ValueOptions
from spark_jobs.job.config_values import values_by_config

JSON = ValueOptions(format=ValueFormat.JSON, schema="id BIGINT", max_fields=7)
FILES = ValueOptions(format=ValueFormat.BYTES, schema_files=("shop.desc",), message="shop.v1.Order")


def test_a_topic_may_name_every_format() -> None:
    assert [str(one) for one in IcebergValueFormat] == [str(one) for one in ValueFormat]
    assert [str(one) for one in IcebergKeyFormat] == [str(one) for one in KeyFormat]


@pytest.mark.parametrize(
    ("values", "config", "expected"),
    [
        (JSON, IcebergConfig(), JSON),
        (JSON, IcebergConfig(value_format="json"), JSON),
        (JSON, IcebergConfig(key_format="string"), replace(JSON, key_format=KeyFormat.STRING)),
        (JSON, IcebergConfig(schema="a INT"), replace(JSON, schema="a INT")),
        (JSON, IcebergConfig(value_format="avro"), replace(JSON, format=ValueFormat.AVRO, schema=None)),
        (
            JSON,
            IcebergConfig(value_format="avro", schema='"string"'),
            replace(JSON, format=ValueFormat.AVRO, schema='"string"'),
        ),
        (
            FILES,
            IcebergConfig(value_format="protobuf", message="shop.v1.Item"),
            replace(FILES, format=ValueFormat.PROTOBUF, message="shop.v1.Item"),
        ),
        (
            FILES,
            IcebergConfig(value_format="string"),
            ValueOptions(format=ValueFormat.STRING),
        ),
        (FILES, IcebergConfig(schema="x"), replace(FILES, schema="x", schema_files=())),
    ],
)
def test_what_a_topic_says_stands_above_the_options(
    values: ValueOptions, config: IcebergConfig, expected: ValueOptions
) -> None:
    assert values_by_config(values, config) == expected
