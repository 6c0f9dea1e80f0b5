"""Looks at groups in the metadata store: their records, members, and the starts and states of share groups.

Brokers go on meanwhile, so each shard with something remarkable is read a second time, and only what both passes see
counts. States are read before starts, so that a state belongs to the start that is read, or to one before it.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafscale.errors import CorruptDataError
from kafscale.formats.any_group_record import AnyGroupRecord, decode_any_group
from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember, decode_consumer_member
from kafscale.formats.share_group_record import ShareGroupRecord
from kafscale.formats.share_member_record import ShareMember, decode_share_member, is_share_member
from kafscale.formats.share_start_record import decode_share_start
from kafscale.formats.share_state_record import ShareStateRecord, decode_share_state
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import KeyValue
from kafscale.protocol.quoting import quoted
from kafscale.tools.fsck.findings import Finding, FindingKind
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.recovery.rebuild import patiently

T = TypeVar("T")

_MEMBER_OF: Mapping[type, type] = {ConsumerGroupRecord: ConsumerMember, ShareGroupRecord: ShareMember}
_WITHOUT_TOPIC = "deleted at the next round of KAFSCALE_OFFSETS_RETENTION_CHECK_INTERVAL_MS after the topic"


@dataclass(frozen=True, slots=True)
class _Topics:
    """Topics by id; `are_all` is False if one cannot be read, so that none may be taken for gone."""

    by_id: Mapping[uuid.UUID, TopicRecord]
    are_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """The keys and values of a shard's groups."""

    states: Sequence[KeyValue]
    starts: Sequence[KeyValue]
    members: Sequence[KeyValue]
    groups: Sequence[KeyValue]


class GroupCheck:
    """`log_ends`: log end offsets that were read before, by topic and partition: logs only grow."""

    def __init__(self, reading: Reading, log_ends: Mapping[tuple[str, int], int]) -> None:
        self._reading = reading
        self._log_ends = log_ends

    async def check(self) -> list[Finding]:
        """The findings of all groups; one shard is in memory at a time. Raises `StoreError`."""
        topics = await self._topics()
        findings: list[Finding] = []
        for shard in range(keys.GROUP_SHARD_COUNT):
            first = list(_findings(await self._read(shard), topics, self._log_ends))
            if not first:
                continue
            seen = {one.identity for one in first}
            again = _findings(await self._read(shard), await self._topics(), self._log_ends)
            findings += [one for one in again if one.identity in seen and not await self._has_grown(one)]
        return findings

    async def _read(self, shard: int) -> _Shard:
        return _Shard(
            states=(await self._reading.range(keys.shard_share_states(shard))).items,
            starts=(await self._reading.range(keys.shard_share_starts(shard))).items,
            members=(await self._reading.range(keys.shard_members(shard))).items,
            groups=(await self._reading.range(keys.groups(shard))).items,
        )

    async def _topics(self) -> _Topics:
        by_id, are_all = {}, True
        for item in (await self._reading.range(keys.TOPICS)).items:
            try:
                record = decode_topic_record(item.key, item.value)
            except CorruptDataError:
                are_all = False  # It is a finding of its own.
                continue
            by_id[record.topic_id] = record
        return _Topics(by_id, are_all)

    async def _has_grown(self, finding: Finding) -> bool:
        """True if the log has reached the offset since its end was read."""
        if finding.kind is not FindingKind.SHARE_BEYOND_END or finding.last_offset is None:
            return False
        place = keys.share_partition(finding.key)
        record = (await self._topics()).by_id.get(place.topic_id)
        if record is None:
            return True
        state = await patiently(lambda: self._reading.state(record.name, place.partition))
        return state is None or finding.last_offset < state[0].log_end_offset


def _findings(shard: _Shard, topics: _Topics, log_ends: Mapping[tuple[str, int], int]) -> Iterator[Finding]:
    unreadable: list[Finding] = []
    groups = dict(_decoded(shard.groups, decode_any_group, FindingKind.GROUP_UNREADABLE, unreadable))
    # Of a group that cannot be read it is not known what belongs to it.
    unknown = {keys.group_id(one.key) for one in unreadable}
    by_id = {keys.group_id(key): record for key, record in groups.items()}
    yield from _of_members(shard.members, by_id, unknown, unreadable)
    starts = dict(_decoded(shard.starts, decode_share_start, FindingKind.SHARE_UNREADABLE, unreadable))
    states = dict(_decoded(shard.states, decode_share_state, FindingKind.SHARE_UNREADABLE, unreadable))
    start_keys = {item.key for item in shard.starts}
    for key in (*starts, *states):
        try:
            place = keys.share_partition(key)
        except ValueError as problem:
            yield _finding(FindingKind.SHARE_UNREADABLE, key, str(problem))
            continue
        if place.group_id not in unknown and not isinstance(by_id.get(place.group_id), ShareGroupRecord):
            detail = "a share group of this id goes on from there"
            yield _finding(FindingKind.SHARE_WITHOUT_GROUP, key, detail)
        elif topics.are_all and place.topic_id not in topics.by_id:
            yield _finding(FindingKind.SHARE_WITHOUT_TOPIC, key, _WITHOUT_TOPIC)
    for key, state in states.items():
        try:
            place = keys.share_partition(key)
        except ValueError:
            continue
        start_key = keys.share_start(place)
        if start_key not in start_keys:
            yield _finding(FindingKind.SHARE_STATE_WITHOUT_START, key, "it means nothing")
        elif start_key in starts and state.state_epoch > starts[start_key].state_epoch:
            detail = f"state epoch {state.state_epoch}; the start has {starts[start_key].state_epoch}"
            yield _finding(FindingKind.SHARE_STATE_INCONSISTENT, key, detail)
        elif start_key in starts and state.state_epoch == starts[start_key].state_epoch:
            yield from _beyond_end(key, place, state, topics, log_ends)
    yield from unreadable


def _of_members(
    items: Iterable[KeyValue],
    groups: Mapping[str, AnyGroupRecord],
    unknown: set[str],
    unreadable: list[Finding],
) -> Iterator[Finding]:
    for item in items:
        try:
            group_id, member_id = keys.group_and_member(item.key)
        except ValueError:
            yield _finding(FindingKind.MEMBER_UNREADABLE, item.key, "the key is that of no member")
            continue
        try:
            decode = decode_share_member if is_share_member(item.value) else decode_consumer_member
            member = decode(item.key, member_id, item.value)
        except CorruptDataError as problem:
            unreadable.append(_finding(FindingKind.MEMBER_UNREADABLE, item.key, problem.problem))
            continue
        group = groups.get(group_id)
        if group_id in unknown or (group is not None and _MEMBER_OF.get(type(group)) is type(member)):
            continue
        whose = "there is no such group" if group is None else "the group is of another type"
        yield _finding(
            FindingKind.MEMBER_WITHOUT_GROUP, item.key, f"{whose}; the group's next coordinator deletes it"
        )


def _beyond_end(
    key: str,
    place: SharePartitionId,
    state: ShareStateRecord,
    topics: _Topics,
    log_ends: Mapping[tuple[str, int], int],
) -> Iterator[Finding]:
    topic = topics.by_id.get(place.topic_id)
    end = None if topic is None else log_ends.get((topic.name, place.partition))
    last = state.runs[-1].last if state.runs else state.start_offset - 1
    if topic is not None and end is not None and last >= end:
        detail = f"offsets up to {last} are in flight or finished; the log ends at {end}"
        yield _finding(FindingKind.SHARE_BEYOND_END, key, detail, last)


def _decoded(
    items: Iterable[KeyValue],
    decode: Callable[[str, bytes], T],
    kind: FindingKind,
    unreadable: list[Finding],
) -> Iterator[tuple[str, T]]:
    for item in items:
        try:
            yield item.key, decode(item.key, item.value)
        except CorruptDataError as problem:
            unreadable.append(_finding(kind, item.key, problem.problem))


def _finding(kind: FindingKind, key: str, detail: str, last_offset: int | None = None) -> Finding:
    return Finding(
        kind=kind, subject=_subject(key), detail=quoted(detail, 500), key=key, last_offset=last_offset
    )


def _subject(key: str) -> str:
    """The group, and the member or the partition."""
    try:
        if key.startswith(keys.GROUP_MEMBERS):
            group_id, member_id = keys.group_and_member(key)
            return f"group {quoted(group_id)}, member {quoted(member_id)}"
        if key.startswith((keys.SHARE_STARTS, keys.SHARE_STATES)):
            place = keys.share_partition(key)
            return f"group {quoted(place.group_id)}, partition {place.partition} of topic {place.topic_id}"
        return f"group {quoted(keys.group_id(key))}"
    except (ValueError, IndexError):
        return quoted(key)
