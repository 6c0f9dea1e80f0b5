"""One consumer group, its clients, topics, a store and coordinators, and what must hold whatever happens.

Nothing is simulated that production code does purely: records are encoded, decoded and loaded as a coordinator does.
"""

import itertools
import random
import uuid
from collections import Counter
from dataclasses import replace

from kafscale.formats.consumer_member_record import decode_consumer_member
from kafscale.groups import any_group
from kafscale.groups.assignors.registry import ASSIGNORS
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.consumer.consumer_group import ConsumerGroup, ConsumerPolicy
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived, RegexResolved
from kafscale.groups.effects import Answer, Heartbeated
from kafscale.groups.events import Stored, TimePassed
from kafscale.groups.group import GroupPolicy
from kafscale.groups.loaded_groups import GroupPolicies, load_groups
from kafscale.groups.modern import stored_group
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, partitions_of, union
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded, TopicIdAndCount, TopicsChanged, topic_ids
from kafscale.groups.share.share_group import SharePolicy
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, Operation, Put, Snapshot
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.walking_member import WalkingMember

GROUP = "group"
SESSION_MS = 10_000
POLICY = ConsumerPolicy(
    session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1000, max_size=100, assignors=("uniform", "range")
)
SHARE_POLICY = SharePolicy(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1000, max_size=100)
POLICIES = GroupPolicies(
    GroupPolicy(initial_rebalance_delay_ms=0, max_size=100),
    lambda group_id: POLICY,
    lambda group_id: SHARE_POLICY,
)

TOPICS = ("a", "b", "c", "d")
SUBSCRIPTIONS = (frozenset("a"), frozenset("ab"), frozenset("abc"), frozenset("d"))
REGEXES = ("ab", "bcd")
"""Each matches the topics whose names it has as letters."""

INSTANCES = ("static-1", "static-2")


class ConsumerWorld:
    """The group, and the world around it. `durable`: the store; `unstored`: writes on their way, in their order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.now_ms = 1_000_000
        self.topics: dict[str, TopicIdAndCount] = {}
        self.view = dict(self.topics)
        self.unseen: dict[str, bool] = {}
        self.clients: list[WalkingMember] = []
        self.durable: dict[str, bytes] = {}
        self.unstored: list[tuple[int, list[Operation]]] = []
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.was_durable: set[tuple[str, int, frozenset[TopicIdPartition]]] = set()
        self.told_epoch = 0
        self.stores = 0
        self.to_assign = False
        self.assigned: Assigned | None = None
        self.group = ConsumerGroup(GROUP, POLICY, self.now_ms)
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
                    self.to_assign = True
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
                    client.answered(content)

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

    def check(self) -> None:
        """No partition has two owners, and what the group counts is what it has."""
        owners: dict[TopicIdPartition, str] = {}
        for client in self.clients:
            for partition in client.has:
                other = owners.setdefault(partition, client.member_id)
                assert other == client.member_id, (
                    f"{partition[1]} has two owners: {other}, {client.member_id}"
                )
        group = self.group
        held = {
            partition
            for member in group.members.values()
            for partition in partitions_of(union(member.assigned, member.pending_revocation))
        }
        assert all(map(group.is_owned, held)), "a partition that a member has counts as free"
        for instance_id, member_id in group.static_members.items():
            assert group.members[member_id].instance_id == instance_id, "an instance id of nobody"
        deadlines = [*group.sessions.values(), *group.rebalance_deadlines.values()]
        next_ms = group.next_deadline_ms()
        assert group.is_dead or not deadlines or (next_ms is not None and next_ms <= min(deadlines))
        assert group.is_dead or set(group.sessions) == set(group.members), "a member without a session"

    def ask(self, event: ConsumerHeartbeatReceived) -> None:
        """As the coordinator does: regular expressions are resolved first."""
        self.asked[event.reply_id] += 1
        if self.group.is_dead:
            self.apply(event)
            return
        for regex in self.group.stale_regexes():
            self.apply(RegexResolved(now_ms=self.now_ms, regex=regex, topic_names=self._matching(regex)))
        own = event.subscribed_topic_regex
        self.apply(replace(event, resolved=self._matching(own)) if own else event)

    def move(self, client: WalkingMember) -> None:
        """The client's next request reaches the coordinator."""
        request = client.next_request(self.now_ms)
        if request is not None:
            self.ask(request)

    def _matching(self, regex: str) -> frozenset[str]:
        return frozenset(name for name in self.view if name in regex)

    def take_one(self) -> None:
        """The oldest operation that is not stored yet is durable now."""
        if not self.unstored:
            return
        store_id, operations = self.unstored[0]
        if operations:
            self.make_durable(operations.pop(0))
        if not operations:
            del self.unstored[0]
            self.apply(Stored(now_ms=self.now_ms, store_id=store_id))

    def make_durable(self, operation: Operation) -> None:
        """The store has it; what it tells of a member may be told to that member."""
        if isinstance(operation, Delete):
            self.durable.pop(operation.key, None)
            return
        assert isinstance(operation, Put)
        self.durable[operation.key] = operation.value
        if operation.key.startswith(keys.GROUP_MEMBERS):
            _, member_id = keys.group_and_member(operation.key)
            member = decode_consumer_member(operation.key, member_id, operation.value)
            self.was_durable.add((member_id, member.member_epoch, frozenset(partitions_of(member.assigned))))

    def the_assignment_goes_on(self) -> None:
        """It is computed, or, later, known to the group."""
        if self.assigned is not None:
            assigned, self.assigned = self.assigned, None
            self.apply(assigned)
        elif self.to_assign:
            self.to_assign = False
            self.assigned = self.compute()
            if self.random.random() < 0.5:
                self.the_assignment_goes_on()

    def compute(self) -> Assigned:
        """The target of the group as it is now."""
        group = self.group
        names = group.subscribed_topics()
        topics = {name: topic for name, topic in self.topics.items() if name in names}
        members = {
            member_id: Subscription(
                topic_ids=topic_ids(topics, group.topics_of(member)),
                instance_id=member.instance_id,
                owned=group.target_of(member_id) or member.assigned,
            )
            for member_id, member in sorted(group.members.items())
        }
        counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        target: dict[str, Assignment] = ASSIGNORS[group.assignor](members, counts)
        return Assigned(now_ms=self.now_ms, epoch=group.group_epoch, target=target, topics=topics)

    def nothing_waits(self) -> None:
        """Store and assignor have done all that they were asked to."""
        while self.unstored or self.to_assign or self.assigned is not None:
            self.take_one()
            self.the_assignment_goes_on()

    def topics_change(self) -> None:
        """A topic is created, deleted, made again, or grows."""
        name = self.random.choice(TOPICS)
        topic = self.topics.get(name)
        grows = topic is not None and self.random.random() < 0.4
        # As the view will see it: if the topic came or went, and did not only grow.
        self.unseen[name] = self.unseen.get(name, False) or not grows
        if topic is not None and grows:
            self.topics[name] = TopicIdAndCount(topic.topic_id, topic.partition_count + 1)
        elif topic is None or self.random.random() < 0.3:
            topic_id = uuid.UUID(int=self.random.getrandbits(128))
            self.topics[name] = TopicIdAndCount(topic_id, self.random.randrange(1, 4))
        else:
            del self.topics[name]

    def the_view_follows(self) -> None:
        """The broker's view of the topics is the store's again; it has seen each change."""
        changed, self.unseen = self.unseen, {}
        self.view = dict(self.topics)
        if not changed or not self.group.members or self.group.is_dead:
            return
        if any(changed.values()):
            self.group.regexes_are_stale()
        names = self.group.subscribed_topics()
        if not names.isdisjoint(changed):
            topics = {name: topic for name, topic in self.view.items() if name in names}
            self.apply(TopicsChanged(now_ms=self.now_ms, topics=topics))

    def advance(self, ms: int, *, is_noticed: bool = True) -> None:
        """The clock goes on: clients know when their sessions end before the coordinator does."""
        self.now_ms += ms
        for client in self.clients:
            client.time_is(self.now_ms)
        if not is_noticed:
            return
        slow = {one for one, at_ms in self.group.rebalance_deadlines.items() if at_ms <= self.now_ms}
        for client in self.clients:
            # Its rebalance timeout is its longest callback: it leaves by itself by then.
            if client.member_id in slow and not self.group.is_dead:
                client.start_again()
        self.apply(TimePassed(now_ms=self.now_ms))

    def load(self) -> None:
        """A new coordinator has what the store has; the clients find it."""
        self.unstored, self.to_assign, self.assigned = [], False, None
        self.asked.clear()
        self.answered.clear()
        for client in self.clients:
            if client.reply_id is not None:
                client.lose_answer()
        groups = self.snapshot(keys.groups(keys.shard_of(GROUP)))
        members = self.snapshot(keys.shard_members(keys.shard_of(GROUP)))
        loaded = load_groups(groups, members, POLICIES, self.now_ms)
        assert not loaded.unreadable
        for key in loaded.leftover_members:
            del self.durable[key]  # As the shard does.
        if loaded.groups:
            group = loaded.groups[0].group
            assert isinstance(group, ConsumerGroup)
            self.group = group
        else:
            assert not self.told_epoch, "a group is lost"
            self.group = ConsumerGroup(GROUP, POLICY, self.now_ms)
        assert self.group.group_epoch >= self.told_epoch, "the epoch went back"
        self.apply(Loaded(now_ms=self.now_ms))

    def snapshot(self, prefix: str) -> Snapshot:
        """All that the store has below the prefix."""
        items = (
            KeyValue(key=key, value=value, mod_revision=1)
            for key, value in sorted(self.durable.items())
            if key.startswith(prefix)
        )
        return Snapshot(items=tuple(items), revision=1)
