"""Produce to a compacted topic: every record has a key, and the answer says which one has not, as Kafka's does."""

from typing import Any

import pytest

from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.keyed_records import MOST_RECORD_ERRORS
from kafscale.protocol.record_batch import HEADER_SIZE, write_crc
from tests.log.compaction.logs_of_keys import Sent, batch_of
from tests.support import wire
from tests.support.in_process_broker import Client, in_process_broker

COMPACTED = {"cleanup.policy": "compact"}
LONG = b"0" * 10_000
"""Looked into on a thread."""


async def refusal(client: Client, batch: bytes) -> Any:
    return await client.produce("topic", 0, batch)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("value", [b"short", LONG])
async def test_records_without_a_key_are_refused_by_their_places(codec: str, value: bytes) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(configs=COMPACTED)
        keyless = [Sent(b"a", value), Sent(None, value), Sent(b"", value), Sent(None, None), Sent(b"b", None)]
        part = await refusal(client, batch_of(keyless, codec=codec))
        assert part.error_code == ErrorCode.INVALID_RECORD
        text = "Compacted topic cannot accept message without key in topic partition topic-0."
        assert [(one.batch_index, one.batch_index_error_message) for one in part.record_errors] == [
            (1, text),
            (3, text),
        ]
        assert part.error_message.startswith("One or more records have been rejected due to 2 record errors")
        # None of them is there, and the next batch begins at the first offset.
        with_keys = [Sent(b"a", value), Sent(b"", None)]
        part = await client.produce("topic", 0, batch_of(with_keys, codec=codec))
        assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 0)


async def test_another_topic_takes_records_without_a_key() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(configs={"cleanup.policy": "delete"})
        assert (await client.produce("topic", 0, wire.batch([b"1"]))).error_code == ErrorCode.NONE


async def test_the_answer_names_a_limited_number_of_records() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(configs=COMPACTED)
        part = await refusal(client, wire.batch([b""] * 5000))
        assert len(part.record_errors) == MOST_RECORD_ERRORS
        assert "due to 5000 record errors" in part.error_message


@pytest.mark.parametrize("size", [10, 10_000])
async def test_what_is_no_record_is_refused(size: int) -> None:
    """On other topics it is stored as it came, and every consumer stumbles over it."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(configs=COMPACTED)
        broken = bytearray(batch_of([Sent(b"key", b"0" * size)]))
        broken[HEADER_SIZE] ^= 0x10
        write_crc(broken, 0)
        part = await refusal(client, bytes(broken))
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert not part.record_errors
