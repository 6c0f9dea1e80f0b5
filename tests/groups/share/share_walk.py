"""A random walk of one share group: clients, topics, a store and coordinators, and what must hold at each step.

Nothing is simulated that production code does purely: records are encoded, decoded and loaded as a coordinator does.
"""

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable

from kafscale.formats.share_group_record import ShareGroupRecord, decode_share_group
from kafscale.formats.share_member_record import ShareMember, decode_share_member
from kafscale.groups import any_group
from kafscale.groups.assignors import simple_assignor
from kafscale.groups.effects import Answer, Heartbeated
from kafscale.groups.events import Remove, Stored, TimePassed, Unload
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
from tests.groups.consumer.consumer_walk import POLICIES, SHARE_POLICY
from tests.groups.share.walking_member import WalkingShareMember

GROUP = "group"
TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = (frozenset("a"), frozenset("ab"), frozenset("abc"), frozenset("c"))
TIME_STEPS_MS = (0, 1, 100, 1000, 3000, 5000, 11_000)
MOST_CLIENTS = 7
ROUNDS_TO_REST = 30
LOST_ANSWERS = 0.1


class ShareWalk:
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

    # Events and effects

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

    # Steps

    def step(self) -> None:
        """Do something at random."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (40, self.somebody_moves),
            (6, self.somebody_arrives),
            (4, self.somebody_loses_its_answer),
            (3, self.a_request_is_lost),
            (3, self.somebody_changes),
            (3, self.somebody_leaves),
            (2, self.somebody_dies),
            (2, self.everybody_leaves),
            (3, self.a_stranger_asks),
            (20, self.the_store_takes_some),
            (12, self.the_assignment_goes_on),
            (5, self.topics_change),
            (6, self.the_view_follows),
            (8, self.time_passes),
            (3, self.the_deadline_comes),
            (2, self.the_coordinator_dies),
            (1, self.the_coordinator_moves),
            (1, self.somebody_deletes_the_group),
            (2, self.somebody_deletes_starts),
        ]
        weights, actions = zip(*steps, strict=True)
        self.random.choices(actions, weights)[0]()

    def somebody_moves(self) -> None:
        """A client goes on."""
        if self.clients:
            self.move(self.random.choice(self.clients))

    def move(self, client: WalkingShareMember) -> None:
        """The client's next request reaches the coordinator."""
        request = client.next_request(self.now_ms)
        if request is not None:
            self.ask(request)

    def somebody_arrives(self) -> None:
        """A new client."""
        if len(self.clients) < MOST_CLIENTS:
            member_id = self.random.choice("amz") + str(next(self.numbers))
            names = self.random.choice(SUBSCRIPTIONS)
            self.clients.append(WalkingShareMember(self.numbers, member_id, names))
            self.move(self.clients[-1])

    def somebody_loses_its_answer(self) -> None:
        """A client waits for its answer no longer, and asks again; or it begins again, under the same id."""
        waiting = [one for one in self.clients if one.reply_id is not None]
        if waiting:
            client = self.random.choice(waiting)
            client.lose_answer()
            if self.random.random() < 0.3:
                client.epoch = 0
            if self.random.random() < 0.5:
                self.move(client)

    def a_request_is_lost(self) -> None:
        """A request does not reach the coordinator."""
        if self.clients:
            client = self.random.choice(self.clients)
            if client.next_request(self.now_ms) is not None:
                client.lose_answer()

    def somebody_changes(self) -> None:
        """A client subscribes to something else."""
        members = [one for one in self.clients if one.epoch and one.reply_id is None and not one.is_gone]
        if members:
            client = self.random.choice(members)
            client.names, client.needs_full = self.random.choice(SUBSCRIPTIONS), True
            self.move(client)

    def somebody_leaves(self) -> None:
        """A client leaves; it may be that nobody hears of it."""
        here = [one for one in self.clients if one.epoch]
        if here:
            client = self.random.choice(here)
            self.clients.remove(client)
            if self.random.random() < 0.9:
                self.ask(client.leave(self.now_ms))

    def everybody_leaves(self) -> None:
        """All members leave; a target may be on its way."""
        for client in list(self.clients):
            self.clients.remove(client)
            self.ask(client.leave(self.now_ms))
        if self.random.random() < 0.5:
            while self.unstored:
                self._take_one()
            self.somebody_deletes_starts()
            self.somebody_arrives()

    def somebody_dies(self) -> None:
        """A client says nothing any more."""
        if self.clients:
            self.clients.remove(self.random.choice(self.clients))

    def a_stranger_asks(self) -> None:
        """A request of nobody in particular, or at an epoch that is not the member's."""
        stranger = WalkingShareMember(self.numbers, "nobody", frozenset("a"))
        self.ask(stranger.request(self.now_ms, self.random.choice((-1, 1, 2, self.group.group_epoch + 1))))
        if self.clients:
            client = self.random.choice(self.clients)
            if client.reply_id is None:
                self.ask(client.request(self.now_ms, self.group.group_epoch + 1))

    def the_store_takes_some(self) -> None:
        """Some of the writes are durable now, the oldest first."""
        for _ in range(self.random.choice((1, 1, 2, 100))):
            self._take_one()

    def _take_one(self) -> None:
        if not self.unstored:
            return
        store_id, operations = self.unstored[0]
        if operations:
            self._make_durable(operations.pop(0))
        if not operations:
            del self.unstored[0]
            self.apply(Stored(now_ms=self.now_ms, store_id=store_id))

    def _make_durable(self, operation: Operation) -> None:
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

    def time_passes(self) -> None:
        """Some time, which the coordinator may notice or not."""
        self.now_ms += self.random.choice(TIME_STEPS_MS)
        if self.random.random() < 0.8:
            self.apply(TimePassed(now_ms=self.now_ms))

    def the_deadline_comes(self) -> None:
        """Just so much time that there is something to do."""
        deadline = self.group.next_deadline_ms()
        if deadline is not None:
            self.now_ms = max(self.now_ms, deadline)
            self.apply(TimePassed(now_ms=self.now_ms))
            late = [one for one, at_ms in self.group.sessions.items() if at_ms <= self.now_ms]
            assert self.group.is_dead or not late, "a member outlives its session"

    def the_coordinator_dies(self) -> None:
        """Another one starts from what was stored by then."""
        self.load()

    def the_coordinator_moves(self) -> None:
        """All that waits is answered; what was changed is stored, or some of it."""
        self.apply(Unload(now_ms=self.now_ms))
        assert self.asked == self.answered, "not answered by a coordinator that moved"
        for _, operations in self.unstored[: self.random.choice((0, len(self.unstored)))]:
            for operation in operations:
                self._make_durable(operation)
        self.load()

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

    def somebody_deletes_starts(self) -> None:
        """An administrator: it works while the group is empty. What is set at the time is set after that."""
        if not self.group.members and not self.unstored:
            self.starts.clear()
            self.was_durable.clear()

    def somebody_deletes_the_group(self) -> None:
        """An administrator: it works while there are no members."""
        reply_id = next(self.numbers)
        self.asked[reply_id] += 1
        was_dead = self.group.is_dead
        self.apply(Remove(now_ms=self.now_ms, reply_id=reply_id))
        if self.group.is_dead and not was_dead:
            while self.unstored:
                self._take_one()
            while self._is_assigning():
                self.the_assignment_goes_on()
            assert self.asked == self.answered, "not answered by a group that died"
            assert set(self.durable) <= {keys.group(GROUP)}, "a member of nothing is left"
            self.durable.clear()
            self.starts.clear()
            self.was_durable.clear()
            self.told_epoch = 0
            self.load()

    # Rest

    def rest(self) -> None:
        """Nothing happens any more but heartbeats: everybody has its part, all is covered, nothing is written."""
        self.is_resting = True
        self.the_view_follows()
        for _ in range(ROUNDS_TO_REST):
            for client in self.clients:
                if client.reply_id is not None and not self._is_busy():
                    client.lose_answer()
                self.move(client)
            self._settle()
            self.now_ms += 1000
            self.apply(TimePassed(now_ms=self.now_ms))
        self._settle()
        before = self.stores
        for client in self.clients:
            self.move(client)
        self._settle()
        assert self.stores == before, "a group at rest writes"
        assert self.asked == self.answered, "somebody waits for ever"
        self._check_rest()

    def _is_busy(self) -> bool:
        return bool(self.unstored) or self._is_assigning()

    def _is_assigning(self) -> bool:
        under_way = (self.assigned, self.to_start, self.started)
        return self.to_assign or any(one is not None for one in under_way)

    def _settle(self) -> None:
        while self._is_busy():
            self.the_assignment_goes_on()
            self._take_one()

    def _check_rest(self) -> None:
        group = self.group
        assert set(group.members) == {one.member_id for one in self.clients}, "who is a member?"
        covered: set[TopicIdPartition] = set()
        for client in self.clients:
            member = group.members[client.member_id]
            assert client.epoch == member.member_epoch == group.assignment_epoch == group.group_epoch
            assert client.has == frozenset(partitions_of(member.assigned)), (
                "a client does not know what it has"
            )
            assert member.assigned == group.target_of(client.member_id), "a member is not at its target"
            covered |= client.has
        wanted = {
            (topic.topic_id, index)
            for name, topic in self.topics.items()
            if name in group.subscribed_topics()
            for index in range(topic.partition_count)
        }
        assert covered == wanted, "not every partition has a member, or one is of no topic"
        self._check_durable()

    def _check_durable(self) -> None:
        record, members = None, {}
        for key, value in self.durable.items():
            if key.startswith(keys.GROUP_MEMBERS):
                _, member_id = keys.group_and_member(key)
                members[member_id] = decode_share_member(key, member_id, value)
            else:
                record = decode_share_group(key, value)
        assert members == dict[str, ShareMember](self.group.members), "what is stored is not what is known"
        if members:
            assert isinstance(record, ShareGroupRecord)
            # A write may be cut between the members' keys and the record: the next coordinator finds the epoch.
            epochs = [record.group_epoch, *(member.member_epoch for member in members.values())]
            assert max(epochs) == self.group.group_epoch, "another coordinator would go back"
            assert record.state_since_ms == self.group.state_since_ms


def walk(seed: int, steps: int) -> None:
    """So many steps, and rest."""
    one = ShareWalk(seed)
    for _ in range(steps):
        one.step()
    one.rest()
