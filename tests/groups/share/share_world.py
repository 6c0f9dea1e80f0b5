"""One share group and the world around it: topics, a store, coordinators; and what must hold at each step.

Nothing is simulated that production code does purely: records are encoded, decoded and loaded as a coordinator does.
"""

import itertools
import random
import uuid
from collections import Counter

from kafscale.formats.share_member_record import decode_share_member
from kafscale.groups import any_group
from kafscale.groups.assignors import simple_assignor
from kafscale.groups.effects import Answer, Heartbeated
from kafscale.groups.events import Stored
from kafscale.groups.loaded_groups import load_groups
from kafscale.groups.modern import stored_group
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, partitions_of
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded, TopicIdAndCount, TopicsChanged
from kafscale.groups.share.effects import InitializeStarts
from kafscale.groups.share.events import ShareHeartbeatReceived, StartsInitialized
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.share.target_computation import subscriptions
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, Operation, Put, Snapshot
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.consumer_world import POLICIES, SHARE_POLICY
from tests.groups.share.walking_member import WalkingShareMember

GROUP = "group"
TOPICS = ("a", "b", "c")
LOST_ANSWERS = 0.1


class ShareWorld:
    """The group, and the world around it. `durable`: the store; `unstored`: writes on their way, in their order.

    `starts`: the partitions that have a start in the store. `to_start`, `started`: those that are to be set, and that
    were set without the group having heard of it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.now_ms = 1_000_000
        self.topics: dict[str, TopicIdAndCount] = {}
        self.unseen: set[str] = set()
        self.clients: list[WalkingShareMember] = []
        self.durable: dict[str, bytes] = {}
        self.starts: set[TopicIdPartition] = set()
        self.unstored: list[tuple[int, list[Operation]]] = []
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.was_durable: set[tuple[str, int, frozenset[TopicIdPartition]]] = set()
        self.told_epoch = 0
        self.stores = 0
        self.to_assign = False
        self.is_resting = False
        self.assigned: Assigned | None = None
        self.to_start: Assignment | None = None
        self.started: Assignment | None = None
        self.group = ShareGroup(GROUP, SHARE_POLICY, self.now_ms)
        for _ in range(self.random.randrange(3)):
            self.topics_change()

    def apply(self, event: any_group.AnyEvent) -> None:
        """Apply the event, carry out its effects, and check what must always hold."""
        epoch = self.group.group_epoch
        for effect in any_group.apply(self.group, event):
            match effect:
                case Answer():
                    self._answer(effect)
                case StoreChanges():
                    self.stores += 1
                    self.unstored.append((effect.store_id, stored_group.operations_of(GROUP, effect)))
                case Assign():
                    assert not self.to_assign and self.assigned is None, "two assignments at once"
                    assert self.to_start is None and self.started is None, (
                        "an assignment while starts are set"
                    )
                    self.to_assign = True
                case InitializeStarts():
                    assert self.to_start is None and self.started is None, "starts are set twice at once"
                    self.to_start = effect.partitions
        assert self.group.group_epoch >= epoch, "the group epoch went back"
        self.check()

    def _answer(self, answer: Answer) -> None:
        self.answered[answer.reply_id] += 1
        assert self.answered[answer.reply_id] == 1, "answered twice"
        content = answer.content
        if isinstance(content, Heartbeated):
            if content.error_code is ErrorCode.NONE and content.member_epoch > 0:
                self._check_is_durable(content)
            for client in self.clients:
                if client.reply_id == answer.reply_id:
                    self._deliver(client, content)

    def _deliver(self, client: WalkingShareMember, content: Heartbeated) -> None:
        if not self.is_resting and self.random.random() < LOST_ANSWERS:
            client.lose_answer()
            return
        client.answered(content)
        if client.epoch:
            known = (client.member_id, client.epoch, client.has)
            assert known in self.was_durable, "a client does not know what it has"

    def _check_is_durable(self, told: Heartbeated) -> None:
        self.told_epoch = max(self.told_epoch, told.member_epoch)
        known = {
            partitions
            for member_id, epoch, partitions in self.was_durable
            if (member_id, epoch) == (told.member_id, told.member_epoch)
        }
        assert known, "an epoch was told before it was stored"
        if told.assignment is not None:
            partitions = frozenset(partitions_of(told.assignment))
            assert partitions in known, "an assignment was told before it was stored"
            assert partitions <= self.starts, "a partition was assigned that has no start"

    def check(self) -> None:
        """The group counts rightly what it has."""
        group = self.group
        names = {name for member in group.members.values() for name in member.subscribed_topic_names}
        assert group.subscribed_topics() == names, "the group's topics are not those of its members"
        next_ms = group.next_deadline_ms()
        deadlines = group.sessions.values()
        assert group.is_dead or not deadlines or (next_ms is not None and next_ms <= min(deadlines))
        assert group.is_dead or set(group.sessions) == set(group.members), "a member without a session"
        assert group.awaited_targets.members <= group.members.keys()
        assert group.is_dead or (group.state is GroupState.EMPTY) == (not group.members)

    def ask(self, event: ShareHeartbeatReceived) -> None:
        """A request reaches the coordinator."""
        self.asked[event.reply_id] += 1
        self.apply(event)

    def take_one(self) -> None:
        """The oldest operation that waits is durable."""
        if not self.unstored:
            return
        store_id, operations = self.unstored[0]
        if operations:
            self.make_durable(operations.pop(0))
        if not operations:
            del self.unstored[0]
            self.apply(Stored(now_ms=self.now_ms, store_id=store_id))

    def make_durable(self, operation: Operation) -> None:
        """The store has it."""
        if isinstance(operation, Delete):
            self.durable.pop(operation.key, None)
            return
        assert isinstance(operation, Put)
        self.durable[operation.key] = operation.value
        if operation.key.startswith(keys.GROUP_MEMBERS):
            _, member_id = keys.group_and_member(operation.key)
            member = decode_share_member(operation.key, member_id, operation.value)
            partitions = frozenset(partitions_of(member.assigned))
            assert partitions <= self.starts, "a partition was stored that has no start"
            self.was_durable.add((member_id, member.member_epoch, partitions))

    def the_assignment_goes_on(self) -> None:
        """It is computed, or known to the group, or its starts are set."""
        if self.to_start is not None:
            partitions, self.to_start, self.started = self.to_start, None, self.to_start
            self.starts |= set(partitions_of(partitions))
        elif self.started is not None:
            partitions, self.started = self.started, None
            self.apply(StartsInitialized(now_ms=self.now_ms, partitions=partitions))
        elif self.assigned is not None:
            assigned, self.assigned = self.assigned, None
            self.apply(assigned)
        elif self.to_assign:
            self.to_assign = False
            self.assigned = self._compute()
        else:
            return
        if self.random.random() < 0.5:
            self.the_assignment_goes_on()

    def _compute(self) -> Assigned:
        names = self.group.subscribed_topics()
        topics = {name: topic for name, topic in self.topics.items() if name in names}
        counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        target = simple_assignor.assign(subscriptions(self.group, topics), counts)
        return Assigned(now_ms=self.now_ms, epoch=self.group.group_epoch, target=target, topics=topics)

    def topics_change(self) -> None:
        """A topic is created, deleted, made again, or grows."""
        name = self.random.choice(TOPICS)
        topic = self.topics.get(name)
        self.unseen.add(name)
        if topic is not None and self.random.random() < 0.4:
            self.topics[name] = TopicIdAndCount(topic.topic_id, topic.partition_count + 1)
        elif topic is None or self.random.random() < 0.3:
            topic_id = uuid.UUID(int=self.random.getrandbits(128))
            self.topics[name] = TopicIdAndCount(topic_id, self.random.randrange(1, 4))
        else:
            del self.topics[name]

    def the_view_follows(self) -> None:
        """The broker's view of the topics is the store's again; it has seen each change."""
        changed, self.unseen = self.unseen, set()
        names = self.group.subscribed_topics()
        if self.group.members and not self.group.is_dead and not names.isdisjoint(changed):
            topics = {name: topic for name, topic in self.topics.items() if name in names}
            self.apply(TopicsChanged(now_ms=self.now_ms, topics=topics))

    def load(self) -> None:
        """A new coordinator has what the store has; the clients find it."""
        self.unstored, self.to_assign = [], False
        self.assigned, self.to_start, self.started = None, None, None
        self.asked.clear()
        self.answered.clear()
        for client in self.clients:
            client.lose_answer()
        groups = self._snapshot(keys.groups(keys.shard_of(GROUP)))
        members = self._snapshot(keys.shard_members(keys.shard_of(GROUP)))
        loaded = load_groups(groups, members, POLICIES, self.now_ms)
        assert not loaded.unreadable
        for key in loaded.leftover_members:
            del self.durable[key]  # As the shard does.
        if loaded.groups:
            group = loaded.groups[0].group
            assert isinstance(group, ShareGroup)
            self.group = group
        else:
            assert not self.told_epoch, "a group is lost"
            self.group = ShareGroup(GROUP, SHARE_POLICY, self.now_ms)
        assert self.group.group_epoch >= self.told_epoch, "the epoch went back"
        self.apply(Loaded(now_ms=self.now_ms))

    def _snapshot(self, prefix: str) -> Snapshot:
        items = (
            KeyValue(key=key, value=value, mod_revision=1)
            for key, value in sorted(self.durable.items())
            if key.startswith(prefix)
        )
        return Snapshot(items=tuple(items), revision=1)

    def is_busy(self) -> bool:
        """True if the group waits for something."""
        return bool(self.unstored) or self.is_assigning()

    def is_assigning(self) -> bool:
        """True if a target is on its way."""
        under_way = (self.assigned, self.to_start, self.started)
        return self.to_assign or any(one is not None for one in under_way)
