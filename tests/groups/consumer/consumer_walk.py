"""A random walk of one consumer group (`consumer_world`): steps at random, and then rest."""

from collections.abc import Callable
from dataclasses import replace

from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember, MemberState, decode_consumer_member
from kafscale.groups.events import Remove, Unload
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.consumer_world import (
    GROUP,
    INSTANCES,
    REGEXES,
    SESSION_MS,
    SUBSCRIPTIONS,
    ConsumerWorld,
)
from tests.groups.consumer.walking_member import Phase, WalkingMember

TIME_STEPS_MS = (0, 1, 100, 1000, 3000, 5000, 11_000)
PATIENCE_MS = 10 * 60 * 1000


class ConsumerWalk(ConsumerWorld):
    """Steps that clients, the store, the coordinators, the topics and the clock make, and where they must lead."""

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
            self.take_one()

    def topics_change_while_assigning(self) -> None:
        """A client arrives, and between the computation of the target and its end the topics are others."""
        self.somebody_arrives()
        if self.to_assign:
            self.to_assign = False
            self.assigned = self.compute()
        self.topics_change()
        self.the_view_follows()

    def time_passes(self) -> None:
        """Some time, which the coordinator may notice or not."""
        self.advance(self.random.choice(TIME_STEPS_MS), is_noticed=self.random.random() < 0.8)

    def the_deadline_comes(self) -> None:
        """Just so much time that there is something to do."""
        deadline = self.group.next_deadline_ms()
        if deadline is not None:
            self.advance(max(deadline - self.now_ms, 0))

    def the_coordinator_dies(self) -> None:
        """Another one starts from what was stored by then."""
        self.load()

    def the_coordinator_moves(self) -> None:
        """All that waits is answered; what was changed is stored, or some of it."""
        self.apply(Unload(now_ms=self.now_ms))
        assert self.asked == self.answered, "not answered by a coordinator that moved"
        for _, operations in self.unstored[: self.random.choice((0, len(self.unstored)))]:
            for operation in operations:
                self.make_durable(operation)
        self.load()

    def somebody_deletes_the_group(self) -> None:
        """An administrator: it works while there are no members."""
        reply_id = next(self.numbers)
        self.asked[reply_id] += 1
        was_dead = self.group.is_dead
        self.apply(Remove(now_ms=self.now_ms, reply_id=reply_id))
        if self.group.is_dead and not was_dead:
            while self.unstored:
                self.take_one()
            if self.assigned is not None or self.to_assign:
                self.to_assign = False
                self.apply(self.assigned or self.compute())
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
        for item in self.snapshot(keys.shard_members(keys.shard_of(GROUP))).items:
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
