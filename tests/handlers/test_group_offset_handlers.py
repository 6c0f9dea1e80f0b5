"""OffsetCommit, OffsetFetch and OffsetDelete, in every version: what is asked, and how it is answered."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from kafscale.cluster.new_topic import NewTopic
from kafscale.errors import StoreUnavailableError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.commits import PartlyCommittedError
from kafscale.groups.offsets import GroupOffsets
from kafscale.handlers import offset_commit, offset_delete, offset_fetch
from kafscale.metadata import keys
from kafscale.metadata.store import Put, Snapshot
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving import topic_ids
from kafscale.settings.broker import Settings
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask, control_plane
from tests.support.denied_names import DeniedNames
from tests.support.groups_stand_in import GroupsStandIn

NOW_MS = 1_790_000_000_000
METADATA_MAX = 8
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
COMMIT_VERSIONS = range(2, 10)
FETCH_VERSIONS = range(1, 10)
"""Those in which topics have names."""

NOBODY = {"member_id": None, "member_epoch": -1}


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(settings=Settings(offset_metadata_max_bytes=METADATA_MAX)) as plane:
        await plane.topics.create(NewTopic(name="t", partition_count=3), timeout_ms=TIMEOUT_MS)
        plane.groups = GroupsStandIn(ErrorCode.NONE)
        plane.now_ms = NOW_MS
        yield plane


# --- OffsetCommit

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
Codes = list[tuple[str, list[tuple[int, int]]]]


def commit_request(*topics: tuple[str, list[tuple[int, str | None]]], **fields: Any) -> OffsetCommitRequest:
    """Topics with partitions and their metadata; the offset is 100 more than the partition."""
    values: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": 7,
        "member_id": "m",
        "group_instance_id": "i",
        "retention_time_ms": -1,
    }
    return OffsetCommitRequest(
        topics=[
            CommitTopic(
                name=name,
                partitions=[
                    CommitTopic.OffsetCommitRequestPartition(
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
        **values | fields,
    )


def codes_of(reply: Any) -> Codes:
    return [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in reply.topics
    ]


def committed(plane: ControlPlane, offset: int, **fields: Any) -> CommittedOffset:
    record = plane.view.topic("t")
    assert record is not None
    return CommittedOffset(
        topic_id=record.topic_id, offset=offset, **{"commit_timestamp_ms": NOW_MS, "leader_epoch": 5} | fields
    )


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_offsets_are_committed_together(plane: ControlPlane, version: int) -> None:
    request = commit_request(("t", [(2, "mine"), (0, None)]))
    reply = await ask(plane, offset_commit.handle, version, request)
    assert codes_of(reply) == [("t", [(2, 0), (0, 0)])]
    epoch = 5 if version >= 6 else -1
    assert plane.groups.calls == [
        (
            "g",
            {
                "member_id": "m",
                "group_instance_id": "i" if version >= 7 else None,
                "generation": 7,
                "offsets": {
                    ("t", 2): committed(plane, 102, metadata="mine", leader_epoch=epoch),
                    ("t", 0): committed(plane, 100, leader_epoch=epoch),
                },
                "knows_member_epochs": version >= 9,
            },
        )
    ]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@pytest.mark.parametrize(
    ("retention_ms", "expires_ms"),
    [
        (-1, None),
        (0, NOW_MS),
        (60_000, NOW_MS + 60_000),
        (2**63 - 1, 2**63 - 1),  # as long as can be written down
        (-(2**63), 0),
    ],
)
async def test_the_retention_that_a_client_asks_for(
    plane: ControlPlane, version: int, retention_ms: int, expires_ms: int | None
) -> None:
    request = commit_request(("t", [(0, "")]), retention_time_ms=retention_ms)
    await ask(plane, offset_commit.handle, version, request)
    ((_, arguments),) = plane.groups.calls
    (offset,) = arguments["offsets"].values()
    assert offset.expire_timestamp_ms == (expires_ms if version <= 4 else None)


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_what_cannot_be_committed_does_not_keep_the_rest(plane: ControlPlane, version: int) -> None:
    request = commit_request(
        ("absent", [(0, "")]),
        ("t", [(0, "x" * METADATA_MAX), (1, "x" * (METADATA_MAX + 1)), (3, ""), (-1, "")]),
        ("no/name", [(1, "")]),
    )
    reply = await ask(plane, offset_commit.handle, version, request)
    assert codes_of(reply) == [
        ("absent", [(0, UNKNOWN)]),
        ("t", [(0, 0), (1, ErrorCode.OFFSET_METADATA_TOO_LARGE), (3, UNKNOWN), (-1, UNKNOWN)]),
        ("no/name", [(1, UNKNOWN)]),
    ]
    ((_, arguments),) = plane.groups.calls
    assert list(arguments["offsets"]) == [("t", 0)]


def hide_topics(plane: ControlPlane) -> uuid.UUID:
    """The view forgets every topic, as one that has not heard of them yet; returns the id of `t`."""
    record = plane.view.topic("t")
    assert record is not None
    plane.view.apply(keys.TOPICS, Snapshot(items=(), revision=0))
    return record.topic_id


async def test_a_topic_that_the_view_has_not_heard_of_is_committed(plane: ControlPlane) -> None:
    topic_id = hide_topics(plane)
    reply = await ask(
        plane, offset_commit.handle, 8, commit_request(("t", [(0, ""), (3, "")]), ("u", [(0, "")]))
    )
    assert codes_of(reply) == [("t", [(0, 0), (3, UNKNOWN)]), ("u", [(0, UNKNOWN)])]
    ((_, arguments),) = plane.groups.calls
    assert {key: one.topic_id for key, one in arguments["offsets"].items()} == {("t", 0): topic_id}


async def test_a_partition_that_the_view_has_not_heard_of_is_committed(plane: ControlPlane) -> None:
    record = plane.view.topic("t")
    assert record is not None
    grown = encode_topic_record(replace(record, partition_count=5))
    await plane.store.transact([], [Put(keys.topic("t"), grown)])
    plane.view.topic = lambda name, **_: record if name == "t" else None  # type: ignore[method-assign]
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("t", [(4, ""), (5, "")])))
    assert codes_of(reply) == [("t", [(4, 0), (5, UNKNOWN)])]


async def test_a_store_that_is_away_makes_no_topic_unknown(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(names: Any) -> Any:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(plane.topics, "stored", away)
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("t", [(0, "")]), ("u", [(0, "")])))
    assert codes_of(reply) == [("t", [(0, 0)]), ("u", [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)])]


async def test_names_without_end_are_not_all_asked_for(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def stored(names: Any) -> Any:
        asked.extend(names)
        return {}

    monkeypatch.setattr(plane.topics, "stored", stored)
    topics: list[tuple[str, list[tuple[int, str | None]]]] = [
        (f"u{number}", [(0, "")]) for number in range(3000)
    ]
    reply = await ask(plane, offset_commit.handle, 8, commit_request(*topics, ("no/name", [(0, "")])))
    assert {code for _, partitions in codes_of(reply) for _, code in partitions} == {UNKNOWN}
    assert asked == [f"u{number}" for number in range(1024)]


async def test_what_is_durable_of_a_failed_commit_is_said(plane: ControlPlane) -> None:
    refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "late")
    plane.groups.answer = PartlyCommittedError(refusal, frozenset({("t", 1)}))
    request = commit_request(("t", [(0, ""), (1, ""), (2, "x" * 100), (7, "")]))
    reply = await ask(plane, offset_commit.handle, 8, request)
    late = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert codes_of(reply) == [("t", [(0, late), (1, 0), (2, late), (7, UNKNOWN)])]


async def test_a_partition_named_twice_is_committed_as_named_last(plane: ControlPlane) -> None:
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("t", [(0, "a"), (1, ""), (0, "b")])))
    assert codes_of(reply) == [("t", [(0, 0), (1, 0), (0, 0)])]
    ((_, arguments),) = plane.groups.calls
    assert {key: one.metadata for key, one in arguments["offsets"].items()} == {("t", 0): "b", ("t", 1): ""}


async def test_metadata_is_counted_as_java_counts(plane: ControlPlane) -> None:
    umlauts, emojis = "ä" * METADATA_MAX, "\N{GRINNING FACE}" * (METADATA_MAX // 2)
    texts = [umlauts, emojis, emojis + "x"]
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("t", list(enumerate(texts)))))
    assert codes_of(reply) == [("t", [(0, 0), (1, 0), (2, ErrorCode.OFFSET_METADATA_TOO_LARGE)])]


async def test_an_unknown_partition_alone_does_not_reach_the_group(plane: ControlPlane) -> None:
    plane.groups.refuse(ErrorCode.NOT_COORDINATOR)
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("absent", [(0, "")])))
    assert codes_of(reply) == [("absent", [(0, UNKNOWN)])]
    assert plane.groups.calls == []


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@pytest.mark.parametrize("raised", [False, True])
async def test_a_commit_that_the_group_refuses(plane: ControlPlane, version: int, raised: bool) -> None:
    if raised:
        plane.groups.refuse(ErrorCode.ILLEGAL_GENERATION)
    else:
        plane.groups.answer = ErrorCode.ILLEGAL_GENERATION
    request = commit_request(("t", [(0, ""), (1, "x" * 100), (9, "")]))
    reply = await ask(plane, offset_commit.handle, version, request)
    illegal = int(ErrorCode.ILLEGAL_GENERATION)
    assert codes_of(reply) == [("t", [(0, illegal), (1, illegal), (9, UNKNOWN)])]


async def test_a_commit_is_authorized_before_its_metadata_is_checked(plane: ControlPlane) -> None:
    plane.groups.answer = ErrorCode.UNKNOWN_MEMBER_ID
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("t", [(0, "x" * 100)])))
    assert codes_of(reply) == [("t", [(0, ErrorCode.UNKNOWN_MEMBER_ID)])]
    assert plane.groups.calls[0][1]["offsets"] == {}


async def test_other_requests_run_during_a_large_commit(plane: ControlPlane) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    reply = await ask(plane, offset_commit.handle, 8, commit_request(("t", [(0, "")] * 10_000)))
    running.cancel()
    assert codes_of(reply) == [("t", [(0, 0)] * 10_000)]
    assert turns > 70


# --- OffsetCommit by topic ids

STRANGER = uuid.UUID(int=77)


def topic_id_of(plane: ControlPlane, name: str = "t") -> uuid.UUID:
    record = plane.view.topic(name)
    assert record is not None
    return record.topic_id


def commit_by_id(*named: tuple[uuid.UUID, int]) -> OffsetCommitRequest:
    topics: list[tuple[str, list[tuple[int, str | None]]]] = [("", [(index, None)]) for _, index in named]
    request = commit_request(*topics)
    for topic, (topic_id, _) in zip(request.topics, named, strict=True):
        topic.topic_id = topic_id
    return request


def codes_by_id(reply: Any) -> list[tuple[uuid.UUID, list[tuple[int, int]]]]:
    return [
        (topic.topic_id, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in reply.topics
    ]


@pytest.fixture
def short_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that is not waited for."""
    monkeypatch.setattr(topic_ids, "VIEW_LAG_SEC", 0)


@pytest.mark.usefixtures("short_lag")
async def test_offsets_are_committed_by_topic_id(plane: ControlPlane) -> None:
    known = topic_id_of(plane)
    reply = await ask(plane, offset_commit.handle, 10, commit_by_id((known, 1), (STRANGER, 0), (known, 7)))
    assert codes_by_id(reply) == [
        (known, [(1, 0)]),
        (STRANGER, [(0, ErrorCode.UNKNOWN_TOPIC_ID)]),
        (known, [(7, UNKNOWN)]),
    ]
    ((_, arguments),) = plane.groups.calls
    assert {key: one.topic_id for key, one in arguments["offsets"].items()} == {("t", 1): known}
    assert (arguments["generation"], arguments["knows_member_epochs"]) == (7, True)


async def test_a_refusal_names_topics_by_their_ids(plane: ControlPlane) -> None:
    plane.groups.answer = ErrorCode.STALE_MEMBER_EPOCH
    known = topic_id_of(plane)
    reply = await ask(plane, offset_commit.handle, 10, commit_by_id((known, 0)))
    assert codes_by_id(reply) == [(known, [(0, ErrorCode.STALE_MEMBER_EPOCH)])]


async def test_an_offset_is_not_committed_to_another_topic_of_the_name(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the id and the name the topic was deleted and made again."""

    async def names_of(broker: Any, topic_ids: Any) -> dict[uuid.UUID, str]:
        return {STRANGER: "t"}

    monkeypatch.setattr(offset_commit, "names_of", names_of)
    reply = await ask(plane, offset_commit.handle, 10, commit_by_id((STRANGER, 0)))
    assert codes_by_id(reply) == [(STRANGER, [(0, UNKNOWN)])]
    assert plane.groups.calls == []


async def test_a_commit_waits_for_a_view_that_lags(plane: ControlPlane) -> None:
    topic_id = hide_topics(plane)
    committing = asyncio.create_task(ask(plane, offset_commit.handle, 10, commit_by_id((topic_id, 0))))
    await asyncio.sleep(0)
    snapshot = await plane.store.range(keys.TOPICS)
    plane.view.apply(keys.TOPICS, Snapshot(items=snapshot.items, revision=snapshot.revision))
    assert codes_by_id(await committing) == [(topic_id, [(0, 0)])]


# --- OffsetFetch

FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopic
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
GroupTopic = FetchGroup.OffsetFetchRequestTopics
Named = dict[str, list[int]] | None


def fetch_request(version: int, named: Named, **fields: Any) -> OffsetFetchRequest:
    """One group, `g`, and partitions by topic; None: all."""
    if version < 8:
        topics = None if named is None else [
            FetchTopic(name=name, partition_indexes=indexes) for name, indexes in named.items()
        ]  # fmt: skip
        return OffsetFetchRequest(group_id="g", topics=topics, **fields)
    return OffsetFetchRequest(groups=[fetch_group("g", named)], **fields)


def fetch_group(group_id: str, named: Named) -> Any:
    topics = None if named is None else [
        GroupTopic(name=name, partition_indexes=indexes) for name, indexes in named.items()
    ]  # fmt: skip
    return FetchGroup(group_id=group_id, topics=topics)


def fetched(reply: Any, version: int) -> Any:
    """The error and what was found, of the only group."""
    if version < 8:
        return reply.error_code, offsets_of(reply.topics)
    (group,) = reply.groups
    assert group.group_id == "g"
    return group.error_code, offsets_of(group.topics)


def offsets_of(topics: Any) -> dict[tuple[str, int], tuple[int, int, str, int]]:
    return {
        (topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
            one.error_code,
        )
        for topic in topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_committed_offsets_are_fetched(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = {
        ("t", 0): committed(plane, 100, metadata="mine"),
        ("t", 2): committed(plane, 102),
        ("u", 0): committed(plane, 7),
    }
    epoch = 5 if version >= 5 else -1
    request = fetch_request(version, {"t": [1, 0], "absent": [0]})
    reply = await ask(plane, offset_fetch.handle, version, request)
    assert fetched(reply, version) == (
        0,
        {
            ("t", 1): (-1, -1, "", 0),
            ("t", 0): (100, epoch, "mine", 0),
            ("absent", 0): (-1, -1, "", 0),
        },
    )
    assert plane.groups.calls == [("g", {"require_stable": False} | NOBODY)]


@pytest.mark.parametrize("version", FETCH_VERSIONS[1:])
async def test_all_offsets_of_a_group_are_fetched(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = {
        ("t", 0): committed(plane, 100),
        ("u", 0): committed(plane, 7),
        ("t", 2): committed(plane, 102),
    }
    epoch = 5 if version >= 5 else -1
    reply = await ask(plane, offset_fetch.handle, version, fetch_request(version, None))
    assert fetched(reply, version) == (
        0,
        {
            ("t", 0): (100, epoch, "", 0),
            ("t", 2): (102, epoch, "", 0),
            ("u", 0): (7, epoch, "", 0),
        },
    )
    reply = await ask(plane, offset_fetch.handle, version, fetch_request(version, {}))
    assert fetched(reply, version) == (0, {})


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_offsets_that_cannot_be_fetched(plane: ControlPlane, version: int) -> None:
    plane.groups.refuse(ErrorCode.INVALID_GROUP_ID)
    reply = await ask(plane, offset_fetch.handle, version, fetch_request(version, {"t": [0, 1]}))
    if version == 1:  # has no error but those of partitions
        assert offsets_of(reply.topics) == {("t", 0): (-1, -1, "", 24), ("t", 1): (-1, -1, "", 24)}
    else:
        assert fetched(reply, version) == (ErrorCode.INVALID_GROUP_ID, {})


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT]
)
async def test_no_error_is_sent_that_some_clients_take_for_final(
    plane: ControlPlane, code: ErrorCode
) -> None:
    plane.groups.refuse(code)
    for version in FETCH_VERSIONS[1:]:
        reply = await ask(plane, offset_fetch.handle, version, fetch_request(version, None))
        assert fetched(reply, version) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_stable_offsets(plane: ControlPlane, version: int) -> None:
    plane.groups.answer = {}
    await ask(plane, offset_fetch.handle, version, fetch_request(version, None, require_stable=True))
    assert plane.groups.calls == [("g", {"require_stable": True} | NOBODY)]


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("for_all", [True, False])
async def test_partitions_with_pending_offsets(plane: ControlPlane, version: int, for_all: bool) -> None:
    """As in Kafka: an error beside no offset; and a request for all names no partition that has none."""
    plane.groups.answer = GroupOffsets(
        {("t", 0): committed(plane, 100), ("t", 1): committed(plane, 101)},
        frozenset({("t", 1), ("t", 2)}),
    )
    named: Named = None if for_all else {"t": [0, 1, 2]}
    reply = await ask(plane, offset_fetch.handle, version, fetch_request(version, named, require_stable=True))
    unstable = (-1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    expected = {("t", 0): (100, 5, "", 0), ("t", 1): unstable}
    assert fetched(reply, version) == (0, expected if for_all else expected | {("t", 2): unstable})


async def test_several_groups_are_fetched(plane: ControlPlane) -> None:
    offset = committed(plane, 4)
    plane.groups.answer = lambda group_id: {("t", 0): offset} if group_id == "a" else {}
    request = OffsetFetchRequest(
        groups=[fetch_group("a", None), fetch_group("b", {"t": [0]}), fetch_group("c", None)]
    )
    reply = await ask(plane, offset_fetch.handle, 8, request)
    assert [(one.group_id, one.error_code, offsets_of(one.topics)) for one in reply.groups] == [
        ("a", 0, {("t", 0): (4, 5, "", 0)}),
        ("b", 0, {("t", 0): (-1, -1, "", 0)}),
        ("c", 0, {}),
    ]


async def test_what_is_named_again_and_again_is_answered_once(plane: ControlPlane) -> None:
    plane.groups.answer = {("t", 0): committed(plane, 100, metadata="mine")}
    topics = [GroupTopic(name="t", partition_indexes=[0] * 10) for _ in range(10)]
    groups = [FetchGroup(group_id=name, topics=topics) for name in ("g", "h") * 10]
    groups.append(FetchGroup(group_id="h", topics=None))
    reply = await ask(plane, offset_fetch.handle, 8, OffsetFetchRequest(groups=groups))
    assert [group.group_id for group in reply.groups] == ["g", "h"]
    for group in reply.groups:
        assert [(topic.name, len(topic.partitions)) for topic in group.topics] == [("t", 1)]


# --- OffsetFetch of members, and by topic ids


def fetch_by_id(named: dict[uuid.UUID, list[int]] | None, **fields: Any) -> OffsetFetchRequest:
    topics = None if named is None else [
        GroupTopic(topic_id=topic_id, partition_indexes=indexes) for topic_id, indexes in named.items()
    ]  # fmt: skip
    return OffsetFetchRequest(groups=[FetchGroup(group_id="g", topics=topics)], **fields)


def fetched_by_id(reply: Any) -> dict[tuple[uuid.UUID, int], tuple[int, int]]:
    (group,) = reply.groups
    assert group.error_code == 0
    return {
        (topic.topic_id, one.partition_index): (one.committed_offset, one.error_code)
        for topic in group.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [9, 10])
async def test_a_member_says_who_it_is(plane: ControlPlane, version: int) -> None:
    plane.groups.refuse(ErrorCode.STALE_MEMBER_EPOCH)
    group = FetchGroup(group_id="g", member_id="m", member_epoch=4, topics=None)
    reply = await ask(plane, offset_fetch.handle, version, OffsetFetchRequest(groups=[group]))
    assert reply.groups[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert plane.groups.calls == [("g", {"require_stable": False, "member_id": "m", "member_epoch": 4})]


@pytest.mark.usefixtures("short_lag")
@pytest.mark.parametrize("is_hidden", [False, True])
async def test_offsets_are_fetched_by_topic_id(plane: ControlPlane, is_hidden: bool) -> None:
    known = topic_id_of(plane)
    plane.groups.answer = GroupOffsets({("t", 0): committed(plane, 100)}, frozenset({("t", 2)}))
    if is_hidden:  # The view lags behind; the offset says whose it is.
        hide_topics(plane)
    named = {known: [0, 1, 2], STRANGER: [0]}
    reply = await ask(plane, offset_fetch.handle, 10, fetch_by_id(named, require_stable=True))
    assert fetched_by_id(reply) == {
        (known, 0): (100, 0),
        (known, 1): (-1, 0),
        (known, 2): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (STRANGER, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID),
    }


async def test_all_offsets_have_the_ids_of_their_topics(plane: ControlPlane) -> None:
    known = topic_id_of(plane)
    plane.groups.answer = {("t", 0): committed(plane, 100), ("t", 2): committed(plane, 102)}
    reply = await ask(plane, offset_fetch.handle, 10, fetch_by_id(None))
    assert fetched_by_id(reply) == {(known, 0): (100, 0), (known, 2): (102, 0)}


@pytest.mark.usefixtures("short_lag")
async def test_an_offset_of_another_topic_of_the_name_is_not_fetched(plane: ControlPlane) -> None:
    known = topic_id_of(plane)
    plane.groups.answer = {("t", 0): replace(committed(plane, 100), topic_id=STRANGER)}
    reply = await ask(plane, offset_fetch.handle, 10, fetch_by_id({known: [0], STRANGER: [0]}))
    assert fetched_by_id(reply) == {(known, 0): (-1, 0), (STRANGER, 0): (100, 0)}


async def test_a_topic_without_offsets_is_waited_for(plane: ControlPlane) -> None:
    topic_id = hide_topics(plane)
    plane.groups.answer = {}
    fetching = asyncio.create_task(ask(plane, offset_fetch.handle, 10, fetch_by_id({topic_id: [0]})))
    await asyncio.sleep(0)
    snapshot = await plane.store.range(keys.TOPICS)
    plane.view.apply(keys.TOPICS, Snapshot(items=snapshot.items, revision=snapshot.revision))
    assert fetched_by_id(await fetching) == {(topic_id, 0): (-1, 0)}


@pytest.mark.parametrize(("denied", "code"), [("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("x", 0)])
async def test_topics_by_id_are_hidden_by_name(plane: ControlPlane, denied: str, code: int) -> None:
    known = topic_id_of(plane)
    plane.groups.answer = {("t", 0): committed(plane, 100)}
    access = DeniedNames(denied)
    reply = await ask(plane, offset_fetch.handle, 10, fetch_by_id({known: [0]}), access=access)
    assert fetched_by_id(reply) == {(known, 0): (-1 if code else 100, code)}
    reply = await ask(plane, offset_fetch.handle, 10, fetch_by_id(None), access=access)
    assert fetched_by_id(reply) == ({} if code else {(known, 0): (100, 0)})
    plane.groups.answer = ErrorCode.NONE
    reply = await ask(plane, offset_commit.handle, 10, commit_by_id((known, 0)), access=access)
    assert codes_by_id(reply) == [(known, [(0, code)])]


# --- OffsetDelete

DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


def delete_request(named: dict[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            DeleteTopic(
                name=name,
                partitions=[
                    DeleteTopic.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ],
            )
            for name, indexes in named.items()
        ],
    )


async def test_offsets_are_deleted(plane: ControlPlane) -> None:
    await plane.topics.create(NewTopic(name="u"), timeout_ms=TIMEOUT_MS)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    plane.groups.answer = {("t", 2): ErrorCode.NONE, ("t", 0): ErrorCode.NONE, ("u", 0): subscribed}
    request = delete_request({"absent": [0], "t": [2, 3, 0], "u": [0, -1]})
    reply = await ask(plane, offset_delete.handle, 0, request)
    assert plane.groups.calls == [("g", {"partitions": (("t", 2), ("t", 0), ("u", 0))})]
    assert reply.error_code == 0
    assert codes_of(reply) == [
        ("absent", [(0, UNKNOWN)]),
        ("t", [(2, 0), (3, UNKNOWN), (0, 0)]),
        ("u", [(0, subscribed), (-1, UNKNOWN)]),
    ]


async def test_a_group_that_is_not_there_comes_before_its_partitions(plane: ControlPlane) -> None:
    plane.groups.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
    reply = await ask(plane, offset_delete.handle, 0, delete_request({"absent": [0]}))
    assert (reply.error_code, reply.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
