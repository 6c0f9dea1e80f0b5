"""The topic configs of the lake: what is legal, and what an export reads from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.iceberg_configs import (
    ENABLE,
    ICEBERG_CONFIGS,
    KEY_FORMAT,
    MAX_LAYOUT_CHARACTERS,
    MAX_SCHEMA_CHARACTERS,
    MESSAGE,
    ON_EXPIRED,
    PARTITION_BY,
    SCHEMA,
    SORT_BY,
    STARTING_OFFSETS,
    TABLE,
    VALUE_FORMAT,
    IcebergConfig,
    iceberg_config,
    is_switched_on,
)
from kafscale.cluster.topic_config_table import ROWS_BY_NAME
from kafscale.cluster.topic_configs import canonical_text, validate
from kafscale.protocol.error_codes import ErrorCode, KafkaError

COLUMNS = st.sampled_from(["timestamp", "value.country", "_kafka.offset", "key"])
WIDTHS = st.integers(1, 999_999_999)
TERMS = st.one_of(
    COLUMNS,
    st.builds("{}({})".format, st.sampled_from(["year", "months", "day", "days", "hours"]), COLUMNS),
    st.builds("{}( {} ,{} )".format, st.sampled_from(["bucket", "truncate"]), WIDTHS, COLUMNS),
)
ORDERS = st.sampled_from(["", " asc", " DESC", " nulls first", " desc nulls last"])


def refused(name: str, text: str) -> str:
    with pytest.raises(KafkaError) as refusal:
        validate({name: text})
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert name in refusal.value.message
    assert ROWS_BY_NAME[name].kind.legal in refusal.value.message
    return refusal.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (ENABLE, "yes"),
        (ENABLE, ""),
        (TABLE, "a..b"),
        (TABLE, ".a"),
        (TABLE, "a b"),
        (TABLE, "lake.`x`"),
        (TABLE, "x" * 256),
        (VALUE_FORMAT, "xml"),
        (VALUE_FORMAT, "JSON"),
        (KEY_FORMAT, "avro"),
        (MESSAGE, "shop..Order"),
        (MESSAGE, "/etc/passwd"),
        (SCHEMA, "x" * (MAX_SCHEMA_CHARACTERS + 1)),
        (PARTITION_BY, "days(timestamp"),
        (PARTITION_BY, "days(timestamp) desc"),
        (PARTITION_BY, "bucket(0, key)"),
        (PARTITION_BY, "bucket(key)"),
        (PARTITION_BY, "x; drop table y"),
        (PARTITION_BY, "x," * MAX_LAYOUT_CHARACTERS),
        (SORT_BY, "key up"),
        (SORT_BY, "key desc asc"),
        (STARTING_OFFSETS, "2026-11-21T08:00Z"),
        (ON_EXPIRED, "skip"),
    ],
)
def test_values_that_are_refused(name: str, text: str) -> None:
    assert len(refused(name, text)) < 2000


def test_a_text_that_is_refused_is_cut() -> None:
    with pytest.raises(ValueError, match=SCHEMA) as refusal:
        iceberg_config({SCHEMA: "x" * 1_000_000})
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("row", ICEBERG_CONFIGS, ids=lambda row: row.name)
def test_the_defaults_are_legal_and_say_nothing(row: object) -> None:
    name, default = getattr(row, "name", ""), getattr(row, "default", "")
    validate({name: default})
    assert canonical_text(ROWS_BY_NAME[name], default) == default
    assert iceberg_config({name: default}) == IcebergConfig()


def test_what_a_topic_says_of_its_export() -> None:
    configs = {
        ENABLE: "TRUE",
        TABLE: "sales.orders",
        VALUE_FORMAT: "avro",
        KEY_FORMAT: "string",
        SCHEMA: '{"type": "string"}',
        MESSAGE: "shop.v1.Order",
        PARTITION_BY: "days(timestamp) , bucket(16,key)",
        SORT_BY: "key, timestamp desc",
        STARTING_OFFSETS: "latest",
        ON_EXPIRED: "record",
        "retention.ms": "5",
    }
    validate(configs)
    assert is_switched_on(configs)
    assert iceberg_config(configs) == IcebergConfig(
        table="sales.orders",
        value_format="avro",
        key_format="string",
        schema='{"type": "string"}',
        message="shop.v1.Order",
        partition_by=("days(timestamp)", "bucket(16,key)"),
        sort_by=("key", "timestamp desc"),
        starting_offsets="latest",
        on_expired="record",
    )


@pytest.mark.parametrize("configs", [{}, {ENABLE: "false"}, {TABLE: "a"}, {ENABLE: ""}])
def test_a_topic_is_off_unless_it_says_so(configs: dict[str, str]) -> None:
    assert not is_switched_on(configs)


@given(st.lists(TERMS, max_size=6))
def test_every_layout_of_legal_terms_is_legal(terms: list[str]) -> None:
    text = " ,".join(terms)
    canonical = canonical_text(ROWS_BY_NAME[PARTITION_BY], text)
    assert iceberg_config({PARTITION_BY: text}).partition_by == (tuple(terms) or None)
    assert iceberg_config({PARTITION_BY: canonical}).partition_by == (tuple(terms) or None)


@given(st.lists(st.tuples(TERMS, ORDERS), min_size=1, max_size=6))
def test_every_order_of_legal_terms_is_legal(terms: list[tuple[str, str]]) -> None:
    texts = tuple(f"{term}{order}" for term, order in terms)
    assert iceberg_config({SORT_BY: ",".join(texts)}).sort_by == texts


@given(st.dictionaries(st.sampled_from([row.name for row in ICEBERG_CONFIGS]), st.text(max_size=40)))
def test_brokers_and_exports_agree_on_what_is_legal(configs: dict[str, str]) -> None:
    try:
        validate({name: text for name, text in configs.items() if text})
    except KafkaError:
        with pytest.raises(ValueError, match="is not legal"):
            iceberg_config(configs)
    else:
        iceberg_config(configs)
