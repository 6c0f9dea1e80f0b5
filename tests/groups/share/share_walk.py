"""A random walk of one share group: its clients, and what happens to them, the store and the coordinators."""

from collections.abc import Callable

from kafscale.formats.share_group_record import ShareGroupRecord, decode_share_group
from kafscale.formats.share_member_record import ShareMember, decode_share_member
from kafscale.groups.events import Remove, TimePassed, Unload
from kafscale.groups.modern.assignment import TopicIdPartition, partitions_of
from kafscale.metadata import keys
from tests.groups.share.share_world import GROUP, ShareWorld
from tests.groups.share.walking_member import WalkingShareMember

SUBSCRIPTIONS = (frozenset("a"), frozenset("ab"), frozenset("abc"), frozenset("c"))
TIME_STEPS_MS = (0, 1, 100, 1000, 3000, 5000, 11_000)
MOST_CLIENTS = 7
ROUNDS_TO_REST = 30


class ShareWalk(ShareWorld):
    """Steps at random, and rest at the end."""

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
                self.take_one()
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
            self.take_one()

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
                self.make_durable(operation)
        self.load()

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
                self.take_one()
            while self.is_assigning():
                self.the_assignment_goes_on()
            assert self.asked == self.answered, "not answered by a group that died"
            assert set(self.durable) <= {keys.group(GROUP)}, "a member of nothing is left"
            self.durable.clear()
            self.starts.clear()
            self.was_durable.clear()
            self.told_epoch = 0
            self.load()

    def rest(self) -> None:
        """Nothing happens any more but heartbeats: everybody has its part, all is covered, nothing is written."""
        self.is_resting = True
        self.the_view_follows()
        for _ in range(ROUNDS_TO_REST):
            for client in self.clients:
                if client.reply_id is not None and not self.is_busy():
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

    def _settle(self) -> None:
        while self.is_busy():
            self.the_assignment_goes_on()
            self.take_one()

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
