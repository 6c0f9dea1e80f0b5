"""A random walk of one consumer group: clients, topics, a store and coordinators, and what must hold at each step.

Nothing is simulated that production code does purely: records are encoded, decoded and loaded as a coordinator does.
"""

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember, MemberState, decode_consumer_member
from kafscale.groups import any_group
from kafscale.groups.assignors.registry import ASSIGNORS
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.consumer.consumer_group import ConsumerGroup, ConsumerPolicy
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived, RegexResolved
from kafscale.groups.effects import Answer, Heartbeated
from kafscale.groups.events import Remove, Stored, TimePassed, Unload
from kafscale.groups.group import GroupPolicy
from kafscale.groups.loaded_groups import GroupPolicies, load_groups
from kafscale.groups.modern import stored_group
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, partitions_of, union
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded, TopicIdAndCount, TopicsChanged, topic_ids
from kafscale.groups.share.share_group import SharePolicy
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, Operation, Put, Snapshot
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.walking_member import Phase, WalkingMember

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
TIME_STEPS_MS = (0, 1, 100, 1000, 3000, 5000, 11_000)
PATIENCE_MS = 10 * 60 * 1000


class ConsumerWalk:
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

    def _matching(self, regex: str) -> frozenset[str]:
        return frozenset(name for name in self.view if name in regex)

    # Steps

    def step(self) -> None:
        """Do something at random."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (40, self.somebody_moves),
            (20, self.somebody_reconciles),
            (6, self.somebody_arrives),
            (4, self.somebody_loses_its_answer),
            (3, self.a_request_is_lost),
            (3, self.somebody_changes),
            (3, self.somebody_leaves),
            (2, self.somebody_dies),
            (3, self.a_stranger_asks),
            (20, self.the_store_takes_some),
            (10, self.the_assignment_goes_on),
            (5, self.topics_change),
            (6, self.the_view_follows),
            (8, self.time_passes),
            (3, self.the_deadline_comes),
            (2, self.the_coordinator_dies),
            (1, self.the_coordinator_moves),
            (1, self.somebody_deletes_the_group),
        ]
        weights, actions = zip(*steps, strict=True)
        self.random.choices(actions, weights)[0]()

    def somebody_moves(self) -> None:
        """A client goes on."""
        if self.clients:
            self.move(self.random.choice(self.clients))

    def move(self, client: WalkingMember) -> None:
        """The client's next request reaches the coordinator."""
        request = client.next_request(self.now_ms)
        if request is not None:
            self.ask(request)

    def somebody_reconciles(self) -> None:
        """A client gives up what it was asked to."""
        if self.clients:
            self.random.choice(self.clients).reconcile()

    def somebody_arrives(self) -> None:
        """A new client, perhaps with an instance id that another one has."""
        if len(self.clients) > 5:
            return
        is_regex = self.random.random() < 0.3
        self.clients.append(
            WalkingMember(
                numbers=self.numbers,
                member_id=self.random.choice("amz") + str(next(self.numbers)),
                instance_id=self.random.choice((None, None, *INSTANCES)),
                names=frozenset() if is_regex else self.random.choice(SUBSCRIPTIONS),
                regex=self.random.choice(REGEXES) if is_regex else "",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=self.random.choice((4000, 30_000)),
                is_stuck=self.random.random() < 0.15,
            )
        )
        self.move(self.clients[-1])

    def somebody_loses_its_answer(self) -> None:
        """A client waits for its answer no longer, and asks again."""
        waiting = [one for one in self.clients if one.reply_id is not None]
        if waiting:
            client = self.random.choice(waiting)
            client.lose_answer()
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
        members = [
            one for one in self.clients if one.phase is Phase.MEMBER and one.names and one.reply_id is None
        ]
        if members:
            client = self.random.choice(members)
            client.names, client.needs_full = self.random.choice(SUBSCRIPTIONS), True
            self.move(client)

    def somebody_leaves(self) -> None:
        """A client leaves; a static one comes back, perhaps, as another process."""
        here = [one for one in self.clients if one.phase is Phase.MEMBER]
        if not here:
            return
        client = self.random.choice(here)
        request = client.leave(self.now_ms)
        if self.random.random() < 0.9:
            self.ask(request)
        if client.instance_id is not None and self.random.random() < 0.7:
            again = replace(
                client,
                member_id=self.random.choice((client.member_id, f"k{next(self.numbers)}")),
                reply_id=None,
                phase=Phase.TO_JOIN,
            )
            again.start_again()
            self.clients.append(again)
            if self.random.random() < 0.5:
                self.move(again)

    def somebody_dies(self) -> None:
        """A client says nothing any more, and consumes nothing."""
        if self.clients:
            self.clients.remove(self.random.choice(self.clients))

    def a_stranger_asks(self) -> None:
        """A request of nobody in particular, whose epoch or instance id is wrong."""
        members = list(self.group.members)
        member_id = self.random.choice(["nobody", *members])
        epoch = self.random.choice((-2, -1, 1, self.group.group_epoch, self.group.group_epoch + 1))
        stranger = WalkingMember(
            self.numbers, member_id, self.random.choice(("nobody's", *INSTANCES)), frozenset("a"), "", 1, 1
        )
        request = stranger.next_request(self.now_ms)
        assert request is not None
        known = self.group.members.get(member_id)
        if epoch > 0 and (known is None or epoch != known.member_epoch) and member_id != "nobody":
            request = replace(request, owned=None, subscribed_topic_names=None)
        elif member_id != "nobody":
            return
        if epoch <= 0:
            request = replace(request, member_id="nobody")
        self.ask(replace(request, member_epoch=epoch))

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
            member = decode_consumer_member(operation.key, member_id, operation.value)
            self.was_durable.add((member_id, member.member_epoch, frozenset(partitions_of(member.assigned))))

    def the_assignment_goes_on(self) -> None:
        """It is computed, or, later, known to the group."""
        if self.assigned is not None:
            assigned, self.assigned = self.assigned, None
            self.apply(assigned)
        elif self.to_assign:
            self.to_assign = False
            self.assigned = self._compute()
            if self.random.random() < 0.5:
                self.the_assignment_goes_on()

    def _compute(self) -> Assigned:
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

    def topics_change_while_assigning(self) -> None:
        """A client arrives, and between the computation of the target and its end the topics are others."""
        self.somebody_arrives()
        if self.to_assign:
            self.to_assign = False
            self.assigned = self._compute()
        self.topics_change()
        self.the_view_follows()

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

    def time_passes(self) -> None:
        """Some time, which the coordinator may notice or not."""
        self.advance(self.random.choice(TIME_STEPS_MS), is_noticed=self.random.random() < 0.8)

    def the_deadline_comes(self) -> None:
        """Just so much time that there is something to do."""
        deadline = self.group.next_deadline_ms()
        if deadline is not None:
            self.advance(max(deadline - self.now_ms, 0))

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
        self.unstored, self.to_assign, self.assigned = [], False, None
        self.asked.clear()
        self.answered.clear()
        for client in self.clients:
            if client.reply_id is not None:
                client.lose_answer()
        groups = self._snapshot(keys.groups(keys.shard_of(GROUP)))
        members = self._snapshot(keys.shard_members(keys.shard_of(GROUP)))
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

    def _snapshot(self, prefix: str) -> Snapshot:
        items = (
            KeyValue(key=key, value=value, mod_revision=1)
            for key, value in sorted(self.durable.items())
            if key.startswith(prefix)
        )
        return Snapshot(items=tuple(items), revision=1)

    def somebody_deletes_the_group(self) -> None:
        """An administrator: it works while there are no members."""
        reply_id = next(self.numbers)
        self.asked[reply_id] += 1
        was_dead = self.group.is_dead
        self.apply(Remove(now_ms=self.now_ms, reply_id=reply_id))
        if self.group.is_dead and not was_dead:
            while self.unstored:
                self._take_one()
            if self.assigned is not None or self.to_assign:
                self.to_assign = False
                self.apply(self.assigned or self._compute())
            assert self.asked == self.answered, "not answered by a group that died"
            assert set(self.durable) <= {keys.group(GROUP)}, "a member of nothing is left"
            self.durable.clear()
            self.was_durable.clear()
            self.told_epoch = 0
            self.load()

    # Rest

    def settle(self) -> None:
        """From here on all goes well, until nothing changes."""
        self._keep_one_for_each_instance()
        # Two that are stuck could take turns in being removed, joining, and taking from the other.
        for client in [one for one in self.clients if one.is_stuck][1:]:
            client.is_stuck = False
        end_ms = self.now_ms + PATIENCE_MS
        stores = -1
        while stores != self.stores or not self.is_settled():
            assert self.now_ms < end_ms, f"not at rest: {self.group.state}, {self.clients}"
            stores = self.stores
            self.all_goes_well()

    def _keep_one_for_each_instance(self) -> None:
        """Of two processes with the same instance id one is refused for as long as the other lives."""
        by_instance = {
            one.instance_id: one
            for one in sorted(self.clients, key=lambda one: one.phase is Phase.MEMBER)
            if one.phase is not Phase.GONE
        }
        self.clients = [
            one for one in self.clients if one.instance_id is None or by_instance.get(one.instance_id) is one
        ]

    def all_goes_well(self) -> None:
        """Everybody makes a move, the store has everything, the target is computed, and time passes."""
        self.the_view_follows()
        self.nothing_waits()
        for client in list(self.clients):
            if client.phase is Phase.GONE:
                continue
            client.reconcile()
            self.move(client)
            self.nothing_waits()
        self.advance(1000)
        self.nothing_waits()

    def nothing_waits(self) -> None:
        """Store and assignor have done all that they were asked to."""
        while self.unstored or self.to_assign or self.assigned is not None:
            self._take_one()
            self.the_assignment_goes_on()

    def is_settled(self) -> bool:
        """Stable, with exactly the clients that are here; each has what is its own, together they have all."""
        here = [one for one in self.clients if one.phase is not Phase.GONE]
        group = self.group
        if {one.member_id for one in here} != set(group.members):
            return False
        if not here:
            return group.state is GroupState.EMPTY
        if not all(one.phase is Phase.MEMBER and one.has == one.target for one in here):
            return False
        wanted = {
            (topic.topic_id, index)
            for name, topic in self.topics.items()
            if any(name in (one.names or ()) or name in (one.regex or "") for one in here)
            for index in range(topic.partition_count)
        }
        return group.state is GroupState.STABLE and wanted == set().union(*(one.has for one in here))

    def check_rest(self) -> None:
        """At rest nothing is stored and nobody told anything, and the store has all that memory has."""
        assert self.asked == self.answered, "not answered"
        self._check_durable()
        stores, epoch = self.stores, self.group.group_epoch
        for is_loaded in (False, True):
            if is_loaded:
                self.load()
                self.nothing_waits()
            for turn in range(14):
                for client in self.clients:
                    client.errors.clear()
                    if client.phase is Phase.MEMBER and turn == 5:
                        client.needs_full = True
                    had = set(client.has)
                    self.move(client)
                    self.nothing_waits()
                    assert client.errors in ([], [ErrorCode.NONE]), "a member that lives was refused"
                    assert client.has == had and client.has <= client.target, "a group at rest was disturbed"
                self.advance(1000)
            assert self.stores == stores, "a group at rest stored something"
            assert self.group.group_epoch == epoch, "a group at rest has a new epoch"

    def _check_durable(self) -> None:
        """The store has what memory has."""
        stored: dict[str, ConsumerMember] = {}
        for item in self._snapshot(keys.shard_members(keys.shard_of(GROUP))).items:
            _, member_id = keys.group_and_member(item.key)
            stored[member_id] = decode_consumer_member(item.key, member_id, item.value)
        assert stored == self.group.members, "the store does not have what memory has"
        for member in stored.values():
            assert member.state is MemberState.STABLE and not member.pending_revocation
        if self.group.group_epoch:
            record = decode_any_group(GROUP, self.durable[keys.group(GROUP)])
            assert isinstance(record, ConsumerGroupRecord)
            assert record.group_epoch == self.group.group_epoch, "the store has another epoch"


def walk(seed: int, steps: int) -> None:
    """So many steps, and then rest. Raises `AssertionError`."""
    walking = ConsumerWalk(seed)
    for _ in range(steps):
        walking.step()
    walking.settle()
    # Nothing but one change is under way now: it alone has to lead to rest again.
    for change in (walking.topics_change, walking.topics_change_while_assigning):
        change()
        walking.settle()
    walking.check_rest()
