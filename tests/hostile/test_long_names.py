"""Names of 32,767 characters, the longest that a short STRING holds, in every request that quotes them."""

import logging
import struct

import pytest

from kafscale.protocol.api_keys import ApiKey
from tests.support.hand_made import CORRELATION_ID, array, frame, repeated, string
from tests.support.in_process_broker import in_process_broker

TOPIC, BROKER = 2, 4
SET, APPEND = 0, 2
LONGEST = 32_767
TEXTS = {
    "ascii": "a" * LONGEST,
    "digits": "9" * LONGEST,
    "three-byte": "東" * (LONGEST // 3),
    "unprintable": "\x1b" * LONGEST,
    "with-slash": "a/" * (LONGEST // 2),
}


def new_topic(name: str, configs: bytes = array([])) -> bytes:
    return array([string(name) + struct.pack(">ih", 1, 1) + array([]) + configs]) + struct.pack(">i", 5_000)


def resource(kind: int, name: str, rest: bytes) -> bytes:
    return array([struct.pack(">b", kind) + string(name) + rest])


def requests(text: str) -> dict[str, bytes]:
    config, change = string(text) + string(text), string(text) + bytes([APPEND]) + string(text)
    many = repeated(string(text) + string(None), 20)
    return {
        "CreateTopics, name": frame(ApiKey.CREATE_TOPICS, 0, new_topic(text)),
        "CreateTopics, config": frame(ApiKey.CREATE_TOPICS, 1, new_topic("t", array([config])) + b"\x01"),
        "CreateTopics, value": frame(
            ApiKey.CREATE_TOPICS, 1, new_topic("t", array([string("retention.ms") + string(text)])) + b"\x01"
        ),
        "CreateTopics, nulls": frame(ApiKey.CREATE_TOPICS, 1, new_topic("t", many) + b"\x01"),
        "DescribeConfigs, topic": frame(
            ApiKey.DESCRIBE_CONFIGS, 1, resource(TOPIC, text, array([string(text)])) + b"\x01"
        ),
        "DescribeConfigs, broker": frame(
            ApiKey.DESCRIBE_CONFIGS, 1, resource(BROKER, text, array([])) + b"\x01"
        ),
        "AlterConfigs, topic": frame(
            ApiKey.ALTER_CONFIGS, 0, resource(TOPIC, text, array([config])) + b"\x01"
        ),
        "AlterConfigs, broker": frame(
            ApiKey.ALTER_CONFIGS, 0, resource(BROKER, text, array([config])) + b"\x01"
        ),
        "AlterConfigs, broker's": frame(ApiKey.ALTER_CONFIGS, 0, resource(BROKER, "0", many) + b"\x01"),
        "AlterConfigs, config": frame(
            ApiKey.ALTER_CONFIGS, 0, resource(TOPIC, "there", array([config])) + b"\x01"
        ),
        "IncrementalAlterConfigs, topic": frame(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resource(TOPIC, text, array([change])) + b"\x01"
        ),
        "IncrementalAlterConfigs, config": frame(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resource(TOPIC, "there", array([change])) + b"\x01"
        ),
        "CreatePartitions": frame(
            ApiKey.CREATE_PARTITIONS,
            0,
            array([string(text) + struct.pack(">ii", 3, -1)]) + struct.pack(">i?", 5_000, False),
        ),
        "DeleteTopics": frame(ApiKey.DELETE_TOPICS, 3, array([string(text)]) + struct.pack(">i", 5_000)),
        "FindCoordinator": frame(ApiKey.FIND_COORDINATOR, 1, string(text) + b"\x01"),
        "Metadata": frame(ApiKey.METADATA, 4, array([string(text)]) + b"\x01"),
        "DescribeGroups": frame(ApiKey.DESCRIBE_GROUPS, 0, array([string(text)])),
    }


@pytest.mark.parametrize("text", list(TEXTS))
async def test_longest_names_are_answered_and_cut(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafscale"):
        async with in_process_broker() as broker, broker.connect() as client:
            await broker.create_topic("there")
            for name, request in requests(TEXTS[text]).items():
                await client.send_bytes(request)
                answer = await client.receive_frame()
                assert struct.unpack(">i", answer[:4]) == (CORRELATION_ID,), name
                # What was named stands in the answer once; messages quote a part of it.
                assert len(answer) < LONGEST + 4_096 + 4 * 2_000, name
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert sum(len(record.getMessage()) for record in caplog.records) < 100_000
