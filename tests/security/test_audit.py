"""The audit log: a line for each change that an API makes for an administrator, with who made it."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafscale.formats.features import SEGMENT_FORMAT
from kafscale.protocol import api_messages as m
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from tests.security.access_requests import Target, offset_commit, offset_delete
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker

TOPIC = "orders"


@pytest.fixture
async def broker() -> AsyncIterator[InProcessBroker]:
    async with in_process_broker() as broker:
        await broker.create_topic(TOPIC)
        yield broker


async def changes(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture, *requests: tuple[Any, int]
) -> list[tuple[str, str, str, str]]:
    """The lines that the requests (with their versions) have caused."""
    caplog.set_level(logging.INFO, "kafscale.audit")
    caplog.clear()
    async with broker.connect() as client:
        for request, version in requests:
            await client.call(request, RESPONSE_CLASSES[int(request.API_KEY)], version)
    lines: list[Any] = [record for record in caplog.records if record.name == "kafscale.audit"]
    return [(line.message, line.principal, line.client, line.items) for line in lines]


def line(action: str, items: str) -> tuple[str, str, str, str]:
    return action, "User:ANONYMOUS", "127.0.0.1", items


def target(broker: InProcessBroker) -> Target:
    record = broker.process.serving.view.topic(TOPIC)
    assert record is not None
    return Target(TOPIC, record.topic_id)


def quotas(value: float, *, removes: bool = False, validate_only: bool = False) -> tuple[Any, int]:
    entry = m.AlterClientQuotasRequest.EntryData
    entity = [
        entry.EntityData(entity_type="user", entity_name="alice"),
        entry.EntityData(entity_type="client-id", entity_name=None),
    ]
    op = entry.OpData(key="producer_byte_rate", value=value, remove=removes)
    entries = [entry(entity=entity, ops=[op])]
    return m.AlterClientQuotasRequest(entries=entries, validate_only=validate_only), 1


async def test_changed_quotas_are_logged(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    found = await changes(
        broker, caplog, quotas(7, validate_only=True), quotas(1000), quotas(-1), quotas(0, removes=True)
    )
    assert found == [
        line("client quotas altered", "user=alice client-id=<default> (producer_byte_rate=1000)"),
        line("client quotas altered", "user=alice client-id=<default> (producer_byte_rate removed)"),
    ]


async def test_deleted_offsets_and_groups_are_logged(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    where = target(broker)
    delete = m.DeleteGroupsRequest(groups_names=["team", "nobodys"]), 2
    found = await changes(
        broker,
        caplog,
        (offset_commit(where), 8),
        (offset_delete(where), 0),
        (offset_commit(where), 8),
        delete,
    )
    assert found == [line("offsets deleted", "orders-0 of team"), line("groups deleted", "team")]


async def test_deleted_records_are_logged(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with broker.connect() as client:
        for _ in range(3):
            await client.produce(TOPIC, 0, wire.batch([b"v"]))
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic

    def request(index: int) -> tuple[Any, int]:
        wanted = topic.DeleteRecordsPartition(partition_index=index, offset=2)
        topics = [topic(name=TOPIC, partitions=[wanted])]
        return m.DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2

    assert await changes(broker, caplog, request(0), request(9)) == [
        line("records deleted", "orders-0 before 2")
    ]


async def test_updated_features_are_logged(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    def request(level: int, *, validate_only: bool = False) -> tuple[Any, int]:
        update = m.UpdateFeaturesRequest.FeatureUpdateKey
        updates = [update(feature=SEGMENT_FORMAT, max_version_level=level, upgrade_type=1)]
        return (
            m.UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=updates, validate_only=validate_only),
            1,
        )

    found = await changes(broker, caplog, request(2, validate_only=True), request(99), request(2))
    assert found == [line("features updated", f"{SEGMENT_FORMAT}=2")]


async def test_changed_credentials_are_logged_in_short(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    asked = m.AlterUserScramCredentialsRequest
    upsertions = [
        asked.ScramCredentialUpsertion(
            name=f"user-{number}", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
        )
        for number in range(22)
    ]
    deletions = [asked.ScramCredentialDeletion(name="nobody", mechanism=1)]
    ((action, *who, items),) = await changes(
        broker, caplog, (asked(deletions=deletions, upsertions=upsertions), 0)
    )
    assert (action, *who) == line("user credentials changed", "")[:3]
    assert items == ", ".join(f"user-{number}" for number in range(20)) + " and 2 more"
