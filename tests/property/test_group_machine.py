"""Whatever clients, stores and the clock do to a group, it keeps its promises, and comes to rest when they let it.

A walk takes random steps from a seed: clients that follow the protocol at their own pace, clients that repeat
themselves, die, come back under their instance id or change what they follow, requests of nobody in particular,
stores that answer late, wrongly or for what is long past, and coordinators that start again from what was
stored. CheckedGroup checks after each event what must hold.
"""

import itertools
import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.groups.effects import Answer, Store
from kafscale.groups.events import (
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Protocol,
    Remove,
    Stored,
    StoreFailed,
    Sync,
    TimePassed,
    Unload,
)
from kafscale.groups.group import GroupPolicy
from kafscale.groups.machine import TABLE
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.checked_group import CheckedGroup
from tests.groups.simulated_client import Phase, SimulatedClient
from tests.support.nightly import by_day

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(1, 250)

INSTANCES = ("static-1", "static-2")
PROTOCOLS = (
    (Protocol("range", b"r"),),
    (Protocol("range", b"r"), Protocol("roundrobin", b"rr")),
    (Protocol("roundrobin", b"rr"), Protocol("range", b"changed")),
    (Protocol("sticky", b""), Protocol("range", b"r"), Protocol("roundrobin", b"rr")),
)
UNCOMMON = (Protocol("nobody else's", b""),)
TIME_STEPS_MS = (0, 1, 10, 500, 1000, 3000, 10_000, 60_000, 301_000)
LATE_ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)

PATIENCE_MS = 20 * 60 * 1000
"""Dead members hold a group up for a new member's five minutes, then a session and a rebalance, a few times."""


class Walk:
    """A group, its clients, and what has been asked of the store."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.group = CheckedGroup(
            GroupPolicy(
                initial_rebalance_delay_ms=self.random.choice((0, 0, 100, 3000)),
                max_size=self.random.choice((1, 2, 3, 2**31 - 1, 2**31 - 1)),
            )
        )
        self.numbers = itertools.count(1)
        self.now_ms = 0
        self.clients: list[SimulatedClient] = []
        self.open_stores: list[int] = []
        self.perhaps_durable: list[bytes | None] = [None]
        self.events: list[Event] = []

    def apply(self, event: Event) -> None:
        """Apply the event; clients hear the answers that they still wait for."""
        self.events.append(event)
        for effect in self.group.apply(event):
            match effect:
                case Answer():
                    for client in self.clients:
                        if client.reply_id == effect.reply_id:
                            client.answered(effect.content)
                case Store():
                    self.open_stores.append(effect.store_id)

    def move(self, client: SimulatedClient) -> None:
        """Let the client do what its protocol has next."""
        request = client.next_request(self.now_ms)
        if request is not None:
            self.apply(request)

    def stored(self, store_id: int) -> None:
        """The store has it: a later coordinator starts from this."""
        if store_id in self.open_stores:
            self.open_stores.remove(store_id)
            self.perhaps_durable = [self.group.stores[store_id]]
        self.apply(Stored(now_ms=self.now_ms, store_id=store_id))

    # Steps of a walk

    def step(self) -> None:
        """Do something at random."""
        if self.group.group.state is GroupState.DEAD and self.random.random() < 0.3:
            self.the_coordinator_starts_again()
            return
        steps: list[tuple[int, Callable[[], None]]] = [
            (40, self.somebody_moves),
            (20, self.all_goes_well),
            (8, self.somebody_arrives),
            (4, self.somebody_repeats_itself),
            (3, self.somebody_changes),
            (5, self.somebody_comes_back),
            (3, self.somebody_dies),
            (3, self.some_leave),
            (12, self.nobody_asks),
            (10, self.time_passes),
            (4, self.the_deadline_comes),
            (10, self.the_store_answers),
            (1, self.a_store_fails),
            (1, self.a_store_answers_for_something_else),
            (1, self.the_coordinator_starts_again),
            (1, self.the_coordinator_moves),
            (1, self.somebody_deletes_the_group),
        ]
        weights, actions = zip(*steps, strict=True)
        self.random.choices(actions, weights)[0]()

    def somebody_moves(self) -> None:
        """A client goes on."""
        if self.clients:
            self.move(self.random.choice(self.clients))

    def somebody_arrives(self) -> None:
        """A new client, perhaps with an instance id that another one has."""
        if len(self.clients) > 6:
            return
        self.clients.append(
            SimulatedClient(
                numbers=self.numbers,
                instance_id=self.random.choice((None, None, *INSTANCES)),
                protocols=self.random.choice(
                    (*PROTOCOLS, UNCOMMON) if self.random.random() < 0.1 else PROTOCOLS
                ),
                session_timeout_ms=self.random.choice((6000, 10_000, 45_000)),
                rebalance_timeout_ms=self.random.choice((5000, 20_000, 60_000)),
                member_id_required=self.random.random() < 0.7,
                can_skip_assignment=self.random.random() < 0.5,
            )
        )
        self.move(self.clients[-1])

    def somebody_repeats_itself(self) -> None:
        """A client joins or syncs again, from a new connection, without having had its answer."""
        waiting = [one for one in self.clients if one.phase in (Phase.JOINING, Phase.SYNCING)]
        if waiting:
            client = self.random.choice(waiting)
            again = client.join if client.phase is Phase.JOINING else client.sync
            self.apply(again(self.now_ms))

    def somebody_changes(self) -> None:
        """A client joins with another subscription, or, as a leader may, with the same."""
        members = [one for one in self.clients if one.phase in (Phase.MEMBER, Phase.SYNCING, Phase.TO_SYNC)]
        if members:
            client = self.random.choice(members)
            client.protocols = self.random.choice((client.protocols, *PROTOCOLS))
            self.apply(client.join(self.now_ms))

    def somebody_comes_back(self) -> None:
        """A static member starts again, without its member id; perhaps as the others stop."""
        static = [one for one in self.clients if one.instance_id is not None and one.phase is not Phase.GONE]
        if static:
            client = self.random.choice(static)
            client.member_id, client.generation = "", -1
            if self.random.random() < 0.3:
                client.protocols = self.random.choice(PROTOCOLS)
            self.apply(client.join(self.now_ms))
            if self.random.random() < 0.3:
                self.leave([one for one in self.clients if one is not client])

    def somebody_dies(self) -> None:
        """A client says nothing any more."""
        if self.clients:
            self.clients.remove(self.random.choice(self.clients))

    def some_leave(self) -> None:
        """One LeaveGroup for several members, some of whom may not exist."""
        self.leave([one for one in self.clients if self.random.random() < 0.3])

    def leave(self, leaving: list[SimulatedClient]) -> None:
        """These leave, and perhaps somebody else is named who never asked for it."""
        members = [one.leaving() for one in leaving]
        if self.random.random() < 0.3:
            members.append(LeavingMember(self.any_member_id(), self.any_instance_id()))
        if self.random.random() < 0.3:
            members.append(LeavingMember("", self.any_instance_id()))
        self.random.shuffle(members)
        self.apply(Leave(now_ms=self.now_ms, reply_id=next(self.numbers), members=tuple(members)))
        self.clients = [one for one in self.clients if one not in leaving]

    def any_member_id(self) -> str:
        """Of somebody here, or of nobody."""
        group = self.group.group
        return self.random.choice(["", "nobody", *group.members, *group.pending_members])

    def any_instance_id(self) -> str | None:
        """One that is in use, or not."""
        return self.random.choice((None, None, *INSTANCES, "nobody's"))

    def any_generation(self) -> int:
        """This one, most of the time."""
        return self.group.group.generation + self.random.choice((0, 0, 0, -1, 1, -100))

    def nobody_asks(self) -> None:
        """A request that no client here would send: wrong ids, generations, protocols, timeouts."""
        self.random.choice(
            (self.nobody_joins, self.nobody_syncs, self.nobody_beats, self.nobody_commits, self.nobody_leaves)
        )()

    def nobody_joins(self) -> None:
        """A join that is legal on the wire and by the settings, no more."""
        reply_id = next(self.numbers)
        self.apply(
            Join(
                now_ms=self.now_ms,
                reply_id=reply_id,
                member_id=self.any_member_id(),
                new_member_id=f"stranger-{reply_id}",
                group_instance_id=self.any_instance_id(),
                client_id="",
                client_host="",
                session_timeout_ms=self.random.choice((1, 6000, 45_000)),
                rebalance_timeout_ms=self.random.choice((-(2**31), -1, 0, 1, 5000)),
                protocol_type=self.random.choice(("consumer", "consumer", "connect", "")),
                protocols=self.random.choice(((), UNCOMMON, *PROTOCOLS, PROTOCOLS[0] * 2)),
                member_id_required=self.random.random() < 0.5,
            )
        )

    def nobody_syncs(self) -> None:
        """A sync with assignments, which only the leader may send."""
        self.apply(
            Sync(
                now_ms=self.now_ms,
                reply_id=next(self.numbers),
                member_id=self.any_member_id(),
                group_instance_id=self.any_instance_id(),
                generation=self.any_generation(),
                protocol_type=self.random.choice((None, "consumer", "connect")),
                protocol_name=self.random.choice((None, "range", "nobody else's")),
                assignments={self.any_member_id(): b"from nobody in particular"},
            )
        )

    def nobody_beats(self) -> None:
        """A heartbeat."""
        self.apply(
            Heartbeat(
                now_ms=self.now_ms,
                reply_id=next(self.numbers),
                member_id=self.any_member_id(),
                group_instance_id=self.any_instance_id(),
                generation=self.any_generation(),
            )
        )

    def nobody_commits(self) -> None:
        """A commit."""
        self.apply(
            Commit(
                now_ms=self.now_ms,
                reply_id=next(self.numbers),
                member_id=self.any_member_id(),
                group_instance_id=self.any_instance_id(),
                generation=self.any_generation(),
            )
        )

    def nobody_leaves(self) -> None:
        """A leave without anybody."""
        self.apply(Leave(now_ms=self.now_ms, reply_id=next(self.numbers), members=()))

    def time_passes(self) -> None:
        """Some time, which the coordinator may notice or not."""
        self.now_ms += self.random.choice(TIME_STEPS_MS)
        if self.random.random() < 0.8:
            self.apply(TimePassed(now_ms=self.now_ms))

    def the_deadline_comes(self) -> None:
        """Just so much time that there is something to do."""
        deadline = self.group.group.next_deadline_ms()
        if deadline is not None:
            self.now_ms = max(self.now_ms, deadline)
            self.apply(TimePassed(now_ms=self.now_ms))

    def the_store_answers(self) -> None:
        """Something that was to be stored is durable."""
        if self.open_stores:
            self.stored(self.random.choice(self.open_stores))

    def a_store_fails(self) -> None:
        """Something could not be stored, or it is not known: it may be durable all the same."""
        if self.open_stores:
            store_id = self.random.choice(self.open_stores)
            self.open_stores.remove(store_id)
            self.perhaps_durable.append(self.group.stores[store_id])
            error_code = self.random.choice(LATE_ERRORS)
            self.apply(StoreFailed(now_ms=self.now_ms, store_id=store_id, error_code=error_code))

    def a_store_answers_for_something_else(self) -> None:
        """An answer for what was answered before, or was never asked."""
        others = [one for one in range(9) if one not in self.open_stores]
        store_id = self.random.choice(others)
        event = Stored(now_ms=self.now_ms, store_id=store_id)
        failed = StoreFailed(now_ms=self.now_ms, store_id=store_id, error_code=LATE_ERRORS[0])
        self.apply(self.random.choice((event, failed)))

    def the_coordinator_starts_again(self) -> None:
        """A new coordinator has what the store has; the clients find it."""
        record = self.random.choice(self.perhaps_durable)
        self.perhaps_durable = [record]
        self.group.restart(record, self.now_ms)
        self.open_stores.clear()
        for client in self.clients:
            client.lose_connection()

    def the_coordinator_moves(self) -> None:
        """Another broker is the coordinator from now on."""
        self.apply(Unload(now_ms=self.now_ms))

    def somebody_deletes_the_group(self) -> None:
        """An administrator, or the end of the last offset."""
        alive = self.group.group.state is not GroupState.DEAD
        self.apply(Remove(now_ms=self.now_ms, reply_id=next(self.numbers)))
        if alive and self.group.group.state is GroupState.DEAD:
            self.perhaps_durable = [None]
            self.open_stores.clear()

    # Rest

    def all_goes_well(self) -> None:
        """Every client makes its move, the store has everything, and no deadline is missed."""
        for client in self.clients:
            self.move(client)
        for store_id in list(self.open_stores):
            self.stored(store_id)
        deadline = self.group.group.next_deadline_ms()
        if deadline is not None and deadline <= self.now_ms:
            self.apply(TimePassed(now_ms=self.now_ms))

    def settle(self) -> None:
        """From here on clients follow the protocol, stores succeed and time passes, until nothing changes."""
        end_ms = self.now_ms + PATIENCE_MS
        while not self.is_settled():
            assert self.now_ms < end_ms, f"{self.group.group.state} after {PATIENCE_MS} ms: {self.clients}"
            if self.group.group.state is GroupState.DEAD:
                self.the_coordinator_starts_again()
            self.all_goes_well()
            self.now_ms += 1000

    def is_settled(self) -> bool:
        """Stable with exactly the clients that are here, who all know; or Empty without any. All have answers."""
        group = self.group.group
        here = [one for one in self.clients if one.phase is not Phase.GONE]
        members = {one.member_id for one in here if one.phase is Phase.MEMBER}
        known = all(one.generation == group.generation for one in here)
        state = GroupState.STABLE if here else GroupState.EMPTY
        complete = len(members) == len(here) and members == group.members.keys()
        return group.state is state and known and complete and not any(group.waiting_replies())


def walked(seed: int, steps: int) -> Walk:
    """A walk after so many steps."""
    walk = Walk(seed)
    for _ in range(steps):
        walk.step()
    return walk


@settings(max_examples=by_day(60, by_night=4_000))
@given(SEEDS, STEPS)
def test_a_group_comes_to_rest_from_wherever_it_is(seed: int, steps: int) -> None:
    walk = walked(seed, steps)
    walk.settle()
    group = walk.group.group
    assert set(walk.group.asked) == set(walk.group.answered)
    for client in walk.clients:
        if client.phase is not Phase.GONE:
            assert group.members[client.member_id].assignment == client.assignment


def test_table_names_exactly_the_reachable_states() -> None:
    drawn = {(state, event, to) for (state, event), row in TABLE.items() for to in row.to}
    reached: set[tuple[GroupState, type, GroupState]] = set()
    for seed in range(2000):
        reached |= walked(seed, 250).group.reached
        if reached == drawn:
            return
    assert reached == drawn
