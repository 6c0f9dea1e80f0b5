"""A group that checks itself after every event: what must hold whatever clients and the clock do."""

from collections.abc import Iterable

from kafscale.formats.group_record import GroupRecord, decode_group_record, encode_group_record
from kafscale.groups.effects import Answer, Effect, Joined, RebalanceCompleted, Store, Synced
from kafscale.groups.events import (
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    Remove,
    Stored,
    StoreFailed,
    Sync,
    TimePassed,
    Unload,
)
from kafscale.groups.group import GROUP_MEMORY_BYTES, Group, GroupPolicy
from kafscale.groups.machine import TABLE, apply
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode

Request = Join | Sync | Heartbeat | Leave | Commit | Remove
Assignments = dict[str, bytes]


def _pending_memory_bytes() -> int:
    probe = Group("probe", GroupPolicy(initial_rebalance_delay_ms=0, max_size=1), 0)
    probe.add_pending("somebody", 1)
    return probe.memory_bytes - GROUP_MEMORY_BYTES


PENDING_MEMORY_BYTES = _pending_memory_bytes()


class CheckedGroup:
    """Applies events to one group and raises AssertionError when the group breaks a promise.

    It keeps what it needs to know that by itself: who asked what, what each leader assigned, what is durable.
    """

    def __init__(self, policy: GroupPolicy, now_ms: int = 0) -> None:
        self.policy = policy
        self.group = Group("group", policy, now_ms)
        self.asked: dict[int, Request] = {}
        self.answered: dict[int, Answer] = {}
        self.stores: dict[int, bytes] = {}
        self.reached: set[tuple[GroupState, type, GroupState]] = set()
        self._proposed: dict[int, tuple[int, Assignments]] = {}
        self._durable: dict[int, Assignments] = {}
        self._replacing: dict[int, int] = {}
        self._former_ids: dict[str, str] = {}

    def restart(self, record: bytes | None, now_ms: int) -> None:
        """Another coordinator takes over from this record, if any; who waited has lost its connection."""
        self.asked.clear()
        self.answered.clear()
        self.stores.clear()
        self._proposed.clear()
        self._replacing.clear()
        self._durable.clear()
        if record is None:
            self.group = Group("group", self.policy, now_ms)
        else:
            stored = decode_group_record("group", record)
            self.group = Group.of("group", self.policy, stored, now_ms)
            self._durable[stored.generation] = {one.member_id: one.assignment for one in stored.members}
        self._check_group()

    def apply(self, event: Event) -> list[Effect]:
        """Apply the event, then check everything."""
        group = self.group
        before, generation = group.state, group.generation
        held_instances = dict(group.static_members)
        assignments_to_store = group.assignments_to_store
        row = TABLE[before, type(event)]
        if isinstance(event, Request):
            assert event.reply_id not in self.asked, "the test gave a reply id twice"
            self.asked[event.reply_id] = event

        effects = apply(group, event)

        assert group.state in row.to, (
            f"{before} -> {group.state} on {type(event).__name__} is not in the table"
        )
        self.reached.add((before, type(event), group.state))
        if isinstance(event, Stored) and assignments_to_store and assignments_to_store[0] == event.store_id:
            made_for, assignments = self._proposed[event.store_id]
            assert made_for == group.generation and made_for not in self._durable
            self._durable[made_for] = assignments
        if isinstance(event, Stored | StoreFailed):
            self._replacing.pop(event.store_id, None)
        for instance_id, member_id in group.static_members.items():
            if member_id != held_instances.get(instance_id, member_id):
                self._former_ids[member_id] = held_instances[instance_id]
        self._check_answers(answer for answer in effects if isinstance(answer, Answer))
        self._check_generation(generation, before, event, effects)
        for store in (effect for effect in effects if isinstance(effect, Store)):
            self._check_store(store, event)
        for completed in (effect for effect in effects if isinstance(effect, RebalanceCompleted)):
            assert completed.duration_ms >= 0
            assert group.state is GroupState.STABLE
        self._check_group()
        if isinstance(event, TimePassed):
            deadline = group.next_deadline_ms()
            assert deadline is None or deadline > event.now_ms, "the timer would fire again at once"
        if isinstance(event, Unload):
            assert list(group.waiting_replies()) == [] and group.next_deadline_ms() is None
        return effects

    def _check_answers(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            assert answer.reply_id in self.asked, f"nobody asked {answer}"
            assert answer.reply_id not in self.answered, f"{self.answered[answer.reply_id]}, then {answer}"
            self.answered[answer.reply_id] = answer
            request = self.asked[answer.reply_id]
            match answer.content:
                case Joined(error_code=ErrorCode.NONE) as joined:
                    assert isinstance(request, Join)
                    self._check_joined(request, joined)
                case Synced(error_code=ErrorCode.NONE) as synced:
                    assert isinstance(request, Sync)
                    self._check_synced(request, synced)
                case Joined() | Synced() as refused:
                    assert refused.protocol_name is None
                    assert not getattr(refused, "members", ()) and not getattr(refused, "assignment", b"")
                case _:
                    pass
        waiting = list(self.group.waiting_replies())
        assert len(set(waiting)) == len(waiting), "two members wait for one request"
        assert not self.answered.keys() & set(waiting), "a request that was answered still waits"
        forgotten = self.asked.keys() - self.answered.keys() - set(waiting)
        assert not forgotten, f"forgotten: {[self.asked[reply_id] for reply_id in forgotten]}"

    def _check_joined(self, request: Join, joined: Joined) -> None:
        group = self.group
        assert joined.generation == group.generation
        assert joined.protocol_type == group.protocol_type and joined.protocol_name == group.protocol_name
        assert joined.member_id in group.members
        assert request.member_id in ("", joined.member_id)
        assert group.members[joined.member_id].protocols == request.protocols
        if joined.skip_assignment:
            assert request.can_skip_assignment and request.group_instance_id is not None
            assert joined.members and group.state is GroupState.STABLE
        if joined.members:
            assert joined.leader == group.leader == joined.member_id
            assert joined.members == group.members_for_leader()

    def _check_synced(self, request: Sync, synced: Synced) -> None:
        group = self.group
        assert group.state is GroupState.STABLE
        assert request.generation == group.generation
        assert group.generation in self._durable, "an assignment that is not durable was handed out"
        assert synced.assignment == self._assigned(request.member_id)

    def _assigned(self, member_id: str) -> bytes:
        """The assignment that this generation's leader sent for the member, which may have had another id then."""
        assignments = self._durable[self.group.generation]
        while member_id not in assignments and member_id in self._former_ids:
            member_id = self._former_ids[member_id]
        return assignments.get(member_id, b"")

    def _check_generation(
        self, generation: int, before: GroupState, event: Event, effects: list[Effect]
    ) -> None:
        group = self.group
        joined = [
            effect.content
            for effect in effects
            if isinstance(effect, Answer)
            and isinstance(effect.content, Joined)
            and effect.content.error_code is ErrorCode.NONE
        ]
        if group.generation == generation:
            entered = group.state is not before
            assert not (entered and group.state in (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE))
            return
        assert group.generation == generation + 1
        if group.state is GroupState.EMPTY:
            assert not joined
            return
        assert group.state is GroupState.COMPLETING_REBALANCE
        leaders = [one for one in joined if one.leader == one.member_id]
        assert len(leaders) == 1 and {one.leader for one in joined} == {group.leader}
        assert leaders[0].members == group.members_for_leader()
        joined_ids = [one.member_id for one in joined]
        assert len(set(joined_ids)) == len(joined_ids) <= self.policy.max_size
        absent = group.members.keys() - set(joined_ids)
        assert all(group.members[member_id].group_instance_id is not None for member_id in absent)

    def _check_store(self, store: Store, event: Event) -> None:
        group = self.group
        assert store.store_id > max(self.stores, default=0)
        encoded = encode_group_record(store.record)
        assert decode_group_record("group", encoded) == store.record
        self.stores[store.store_id] = encoded
        self._check_loads(store.record)
        assert store.record.generation == group.generation
        stored = {one.member_id: one.assignment for one in store.record.members}
        assert stored.keys() == group.members.keys()
        match event:
            case Sync():
                assert event.member_id == group.leader and group.generation not in self._durable
                assert stored == {
                    member_id: event.assignments.get(member_id, b"") for member_id in group.members
                }
                self._proposed[store.store_id] = (group.generation, stored)
            case Join():
                assert group.state is GroupState.STABLE
                self._replacing[store.store_id] = event.reply_id
                assert stored == {member_id: self._assigned(member_id) for member_id in group.members}
            case _:
                assert group.state is GroupState.EMPTY

    def _check_loads(self, record: GroupRecord) -> None:
        """A coordinator that starts from the record has the group as it would have been here."""
        loaded = Group.of("group", self.policy, record, 0)
        assert loaded.record() == record
        assert loaded.state is (GroupState.STABLE if record.members else GroupState.EMPTY)
        assert loaded.members.keys() == self.group.members.keys()
        assert loaded.static_members == self.group.static_members
        assert (loaded.generation, loaded.leader) == (self.group.generation, self.group.leader)
        assert (loaded.protocol_type, loaded.protocol_name) == (
            self.group.protocol_type,
            self.group.protocol_name,
        )
        assert not list(loaded.waiting_replies())

    def _check_group(self) -> None:
        group = self.group
        members = group.members.values()
        assert list(group.members) == [member.member_id for member in members]
        assert (group.leader in group.members) if group.members else (group.leader is None)
        instances = [
            (member.group_instance_id, member.member_id) for member in members if member.group_instance_id
        ]
        assert dict(instances) == group.static_members and len(instances) == len(group.static_members)
        assert not group.pending_members.keys() & group.members.keys()
        assert group.pending_syncs <= group.members.keys()
        assert group.memory_bytes == (
            GROUP_MEMORY_BYTES
            + sum(member.memory_bytes for member in members)
            + PENDING_MEMORY_BYTES * len(group.pending_members)
        )
        self._check_state()

    def _check_state(self) -> None:
        group = self.group
        members = group.members.values()
        waiting = [one for one in members if one.awaiting_join is not None or one.awaiting_sync is not None]
        match group.state:
            case GroupState.EMPTY:
                assert not group.members and group.protocol_name is None
                assert group.next_deadline_ms() == min(group.pending_members.values(), default=None)
            case GroupState.PREPARING_REBALANCE:
                assert group.join_deadline_ms is not None
                assert all(one.awaiting_sync is None for one in members)
            case GroupState.COMPLETING_REBALANCE:
                assert all(one.awaiting_join is None for one in members)
                stores = group.assignments_to_store is not None
                assert stores or (group.pending_syncs and group.sync_deadline_ms is not None), "it is stuck"
            case GroupState.STABLE:
                being_stored = set(self._replacing.values())
                assert {one.awaiting_join for one in waiting} <= being_stored, "it waits for nothing"
                assert all(one.assignment == self._assigned(one.member_id) for one in members)
            case GroupState.DEAD:
                assert not waiting and group.next_deadline_ms() is None
                return
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert group.members
            assert all(group.protocol_name in [one.name for one in member.protocols] for member in members)
        if any(one not in waiting or one.is_new for one in members) or group.pending_members:
            assert group.next_deadline_ms() is not None
