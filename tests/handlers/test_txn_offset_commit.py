"""TxnOffsetCommit, in every version: what is asked, and how it is answered."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.producer import TxnOffsetCommitRequest

from kafscale.cluster.new_topic import NewTopic
from kafscale.errors import StoreUnavailableError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.transactional_commits import Committer
from kafscale.handlers import txn_offset_commit
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.broker import Settings
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask, control_plane
from tests.support.groups_stand_in import GroupsStandIn

NOW_MS = 1_790_000_000_000
METADATA_MAX = 8
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
VERSIONS = range(6)

Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
Codes = list[tuple[str, list[tuple[int, int]]]]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(settings=Settings(offset_metadata_max_bytes=METADATA_MAX)) as plane:
        await plane.topics.create(NewTopic(name="t", partition_count=3), timeout_ms=TIMEOUT_MS)
        plane.groups = GroupsStandIn(ErrorCode.NONE)
        plane.now_ms = NOW_MS
        yield plane


def commit_request(*topics: tuple[str, list[tuple[int, str | None]]]) -> TxnOffsetCommitRequest:
    """Topics with partitions and their metadata; the offset is 100 more than the partition."""
    return TxnOffsetCommitRequest(
        transactional_id="copier",
        group_id="g",
        producer_id=4000,
        producer_epoch=2,
        generation_id=7,
        member_id="m",
        group_instance_id="i",
        topics=[
            Topic(
                name=name,
                partitions=[
                    Topic.TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=100 + index,
                        committed_leader_epoch=5,
                        committed_metadata=metadata,
                    )
                    for index, metadata in partitions
                ],
            )
            for name, partitions in topics
        ],
    )


def codes_of(reply: Any) -> Codes:
    return [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in reply.topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_each_version_asks_of_the_group(plane: ControlPlane, version: int) -> None:
    reply = await ask(
        plane, txn_offset_commit.handle, version, commit_request(("t", [(2, "mine"), (0, None)]))
    )
    assert codes_of(reply) == [("t", [(2, 0), (0, 0)])]
    record = plane.view.topic("t")
    assert record is not None
    epoch = 5 if version >= 2 else -1
    names_member = version >= 3
    assert plane.groups.calls == [
        (
            "g",
            {
                "committer": Committer(
                    transactional_id="copier",
                    producer_id=4000,
                    producer_epoch=2,
                    member_id="m" if names_member else "",
                    group_instance_id="i" if names_member else None,
                    generation=7 if names_member else -1,
                    adds_group=version == 5,
                    knows_abortable=version >= 4,
                ),
                "offsets": {
                    ("t", index): CommittedOffset(
                        topic_id=record.topic_id,
                        offset=100 + index,
                        leader_epoch=epoch,
                        metadata=metadata,
                        commit_timestamp_ms=NOW_MS,
                    )
                    for index, metadata in ((2, "mine"), (0, ""))
                },
            },
        )
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_cannot_be_committed_does_not_keep_the_rest(plane: ControlPlane, version: int) -> None:
    request = commit_request(
        ("absent", [(0, "")]), ("t", [(0, ""), (1, "x" * (METADATA_MAX + 1)), (3, ""), (-1, "")])
    )
    reply = await ask(plane, txn_offset_commit.handle, version, request)
    too_large = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert codes_of(reply) == [
        ("absent", [(0, UNKNOWN)]),
        ("t", [(0, 0), (1, too_large), (3, UNKNOWN), (-1, UNKNOWN)]),
    ]
    assert set(plane.groups.calls[0][1]["offsets"]) == {("t", 0)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
async def test_a_refusal_is_each_partitions(plane: ControlPlane, version: int, code: ErrorCode) -> None:
    plane.groups.refuse(code)
    request = commit_request(("t", [(0, ""), (1, "x" * 100), (9, "")]))
    reply = await ask(plane, txn_offset_commit.handle, version, request)
    assert codes_of(reply) == [("t", [(0, int(code)), (1, int(code)), (9, UNKNOWN)])]


@pytest.mark.parametrize("version", VERSIONS)
async def test_old_clients_hear_nothing_of_loading(plane: ControlPlane, version: int) -> None:
    plane.groups.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    reply = await ask(plane, txn_offset_commit.handle, version, commit_request(("t", [(0, "")])))
    told = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes_of(reply) == [("t", [(0, int(told))])]


async def test_a_store_without_an_answer_makes_clients_ask_again(plane: ControlPlane) -> None:
    def away(group_id: str) -> ErrorCode:
        raise StoreUnavailableError("away")

    plane.groups.answer = away
    reply = await ask(plane, txn_offset_commit.handle, 5, commit_request(("t", [(0, "")])))
    assert codes_of(reply) == [("t", [(0, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))])]


async def test_an_unknown_partition_alone_does_not_reach_the_group(plane: ControlPlane) -> None:
    plane.groups.refuse(ErrorCode.NOT_COORDINATOR)
    reply = await ask(plane, txn_offset_commit.handle, 5, commit_request(("absent", [(0, "")])))
    assert codes_of(reply) == [("absent", [(0, UNKNOWN)])]
    assert plane.groups.calls == []
