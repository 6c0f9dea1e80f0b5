"""Whatever happens to a partition's leadership, it keeps its promises, and comes to an end when it is to.

A walk takes random steps from a seed: claims that succeed, fail or end with the lease, producers, flushes whose
writes land late or whose answers are lost, defects, resignations, other leaders, repairs, and topics that are
deleted and created again. CheckedLeadership checks after each event what must hold. Mistakes that are put into the
table must be found.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.log.leadership import machine
from kafscale.log.leadership.events import Act, Event, Refuse
from kafscale.log.leadership.machine import ROWS, TABLE, Row
from kafscale.log.leadership.states import RIGHTS, State
from tests.log.checked_leadership import ME, CheckedLeadership, Record, Term
from tests.support.nightly import by_day

SEEDS = st.integers(0, 2**32 - 1)
STEPS = st.integers(1, 300)


class Walk:
    """The broker, and all that happens around it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = CheckedLeadership()
        self.store = self.broker.store
        self.read: Record | None = None
        self.claimed: Record | None = None
        self.unseen: list[int] = []

    def walk(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Do something at random."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (10, self.claim),
            (2, self.claims_end),
            (12, self.load),
            (25, self.append),
            (25, self.flush),
            (40, self.a_flush_goes_on),
            (20, self.the_store_answers),
            (4, self.an_answer_is_lost),
            (1, self.a_flush_is_cancelled),
            (2, self.a_flush_fails),
            (3, self.resign),
            (8, self.a_resignation_goes_on),
            (2, self.the_lease_ends),
            (2, self.another_broker_leads),
            (1, self.the_record_is_repaired),
            (2, self.the_topic_is_deleted),
            (3, self.the_view_shows_it),
            (2, self.a_deletion_settles),
            (2, self.the_topic_is_created),
            (2, self.somebody_reads),
            (6, self.a_reader_sees_the_record),
            (3, self.a_late_write_lands),
        ]
        weights, actions = zip(*steps, strict=True)
        self.random.choices(actions, weights)[0]()

    def any(self, terms: list[Term]) -> Term | None:
        """One of them, a newer one more often than an older."""
        return self.random.choice(terms[-3:]) if terms else None

    # --- claims

    def claim(self) -> None:
        """A claim begins, or its transaction is carried out; the answer arrives, perhaps later, or is lost."""
        broker, record = self.broker, self.store.record
        if broker.claim is None:
            if self.store.owner is None:
                broker.begin_claim()
                self.read = record
            return
        if self.claimed is not None:
            self.a_claim_is_answered()
            return
        claimed = None if self.read is None else self.store.claim(self.read.revision, ME)
        if claimed is not None and self.random.random() < 0.9:
            self.claimed = claimed
            if self.random.random() < 0.6:
                self.a_claim_is_answered()
        elif self.random.random() < 0.5:
            broker.end_claims()

    def a_claim_is_answered(self) -> None:
        """Meanwhile its topic may have been deleted, and created again."""
        if self.claimed is not None:
            claimed, self.claimed = self.claimed, None
            self.broker.elected(claimed)

    def claims_end(self) -> None:
        """The others that were claimed with it have their outcomes, too."""
        self.a_claim_is_answered()
        self.broker.end_claims()
        if self.broker.served is None and self.store.owner is not None and self.store.owner[0] == ME:
            self.store.owner = None  # As the keeper does with a stale claim.

    # --- the log

    def load(self) -> None:
        """A read of the checkpoint ends, which began at any time before."""
        term = self.any([one for one in self.broker.terms if one.state is not State.FOLLOWING])
        if term is not None:
            self.broker.apply(term, Event.LOADED)

    def append(self) -> None:
        """A producer sends a batch to whatever partition it has found."""
        term = self.any(self.broker.terms)
        if term is not None:
            self.broker.append(term)

    def flush(self) -> None:
        """A buffer is due."""
        term = self.any(self.broker.terms)
        if term is not None:
            self.broker.seal(term)

    def flushing(self) -> Term | None:
        """A partition with flushes in flight."""
        return self.any([one for one in self.broker.terms if one.flushes])

    def a_flush_goes_on(self) -> None:
        """One step further to the store."""
        term = self.flushing()
        if term is not None:
            self.broker.go_on(term)

    def the_store_answers(self) -> None:
        """It says the outcome of a publication."""
        term = self.flushing()
        if term is not None:
            self.broker.answer(term, is_lost=False)

    def an_answer_is_lost(self) -> None:
        """The leader reads back."""
        term = self.flushing()
        if term is not None:
            self.broker.answer(term, is_lost=True)

    def a_flush_is_cancelled(self) -> None:
        """Any one; those behind it find out."""
        term = self.flushing()
        if term is not None:
            self.broker.stop_flush(term, self.random.choice(term.flushes))

    def a_flush_fails(self) -> None:
        """A defect in any flush, or a journal that was ended; perhaps behind one whose publication is in flight."""
        term = self.flushing()
        if term is None:
            return
        why = self.random.choice((Event.FLUSH_FAILED, Event.FENCED))
        if self.random.random() < 0.3:
            self.broker.apply(term, why)  # Of its index, or before the flush had begun.
        else:
            self.broker.stop_flush(term, self.random.choice(term.flushes), why)

    def a_late_write_lands(self) -> None:
        """Nobody waits for its answer any more."""
        if self.broker.late:
            self.broker.land(self.broker.late.pop(self.random.randrange(len(self.broker.late))))

    # --- the end of a term

    def resign(self) -> None:
        """The partition is to go elsewhere; it may have been lost, or resigned already."""
        term = self.any([one for one in self.broker.terms if one.state is not State.FOLLOWING])
        if term is not None and (term is self.broker.served or self.random.random() < 0.2):
            self.broker.resign(term)

    def a_resignation_goes_on(self) -> None:
        """It ends when everything is published, or its time is over."""
        term = self.any([one for one in self.broker.terms if one.resignations])
        if term is not None:
            self.broker.resigned(term, in_time=self.random.random() < 0.8)

    def the_lease_ends(self) -> None:
        """The owner key goes with it; the broker resigns when it learns of that."""
        if self.store.owner is not None and self.store.owner[0] == ME:
            self.store.owner = None

    def another_broker_leads(self) -> None:
        """It claims what nobody owns, publishes, and releases it."""
        record = self.store.record
        if record is None or self.store.claim(record.revision, "another broker") is None:
            return
        if self.random.random() < 0.5:
            assert self.store.write(self.store.record_now.revision, self.store.record_now.epoch, (0,))
            self.store.ever_published.discard(0)
        self.store.owner = None

    def the_record_is_repaired(self) -> None:
        """A tool writes the record, in an epoch of its own."""
        record = self.store.record
        if record is not None:
            self.store.write(record.revision, record.epoch + 1)

    # --- topics

    def the_topic_is_deleted(self) -> None:
        """In the store; brokers hear of it later."""
        if self.store.record is not None:
            self.unseen.append(self.store.record.topic)
            self.store.delete_topic()

    def the_view_shows_it(self) -> None:
        """This broker hears of it."""
        if self.unseen:
            self.broker.show_deletion(self.unseen.pop(0))

    def a_deletion_settles(self) -> None:
        """Its flushes have had their time."""
        term = self.any([one for one in self.broker.terms if one.is_deleted])
        if term is not None:
            self.broker.settle(term)

    def the_topic_is_created(self) -> None:
        """One of the name."""
        if self.store.record is None:
            self.store.create_topic(next(self.broker.topics))

    # --- readers

    def somebody_reads(self) -> None:
        """A reader waits at a partition, or begins to follow one."""
        term = self.any(self.broker.terms)
        if term is not None and self.random.random() < 0.7:
            term.readers += 1
        else:
            self.broker.follow()

    def a_reader_sees_the_record(self) -> None:
        """It asks the store what it has, for a partition that this broker may lead or have led."""
        term = self.any(self.broker.terms)
        if term is not None:
            self.broker.see_record(term)

    # --- rest

    def rest(self) -> None:
        """Everything that was begun comes to its end, and this broker leads nothing."""
        broker = self.broker
        self.a_claim_is_answered()
        broker.end_claims()
        while self.unseen:
            self.the_view_shows_it()
        for term in broker.terms:
            if term is broker.served:
                broker.resign(term)
            while term.resignations:
                broker.resigned(term, in_time=False)
            if term.is_deleted:
                broker.settle(term)
        assert broker.served is None and broker.claim is None
        assert all(one.state in (State.CLOSED, State.FOLLOWING) for one in broker.terms)
        assert broker.answers.keys() == broker.accepted


def walked(seed: int, steps: int) -> Walk:
    """A walk after so many steps."""
    walk = Walk(seed)
    walk.walk(steps)
    return walk


@settings(max_examples=by_day(60, by_night=4_000))
@given(SEEDS, STEPS)
def test_leadership_ends_with_every_answer_given(seed: int, steps: int) -> None:
    walked(seed, steps).rest()


def test_every_row_of_the_table_is_reached() -> None:
    reached: set[tuple[State, Event]] = set()
    for seed in range(2000):
        walk = walked(seed, 250)
        walk.rest()
        reached |= walk.broker.reached & ROWS.keys()
        if len(reached) == len(ROWS):
            return
    assert reached == ROWS.keys()


def test_every_state_has_a_row_for_every_event() -> None:
    assert TABLE.keys() == {(state, event) for state in State for event in Event}
    assert RIGHTS.keys() == set(State)


# --- mistakes that the walks must find

Plant = Callable[[pytest.MonkeyPatch], None]


def right(state: State, **rights: bool) -> Plant:
    """The state gives, or does not give, these rights."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(machine, "RIGHTS", {**RIGHTS, state: replace(RIGHTS[state], **rights)})

    return plant


def row(state: State, event: Event, to: State, *effects: Act | Refuse) -> Plant:
    """The event leads elsewhere, or does something else."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(machine, "TABLE", {**TABLE, (state, event): Row(to, effects, "")})

    return plant


def without(state: State, event: Event, *effects: Act | type[Refuse]) -> Plant:
    """The row lacks these effects."""
    found = TABLE[state, event]
    left = [one for one in found.effects if one not in effects and type(one) not in effects]
    assert len(left) == len(found.effects) - len(effects)
    return row(state, event, found.to, *left)


MISTAKES: dict[str, Plant] = {
    "resigning accepts": right(State.RESIGNING, appends=True),
    "halted accepts": right(State.HALTED, appends=True),
    "a leader follows its successor": right(State.LEADING, follows=True),
    "resigning follows its successor": right(State.RESIGNING, follows=True),
    "halted seals": right(State.HALTED, seals=True),
    "deleting seals": right(State.DELETING, seals=True),
    "closed publishes": right(State.CLOSED, publishes=True),
    "an election is not served": without(State.CLAIMING, Event.ELECTED, Act.SERVE),
    "an election leaves requests waiting": without(State.CLAIMING, Event.ELECTED, Act.END_CLAIM),
    "an election is not counted": without(State.CLAIMING, Event.ELECTED, Act.COUNT_ELECTED),
    "a failed claim leaves requests waiting": without(State.CLAIMING, Event.NOT_ELECTED, Act.END_CLAIM),
    "a claim of a deleted topic is led": row(State.CLAIMING, Event.TOPIC_DELETED, State.CLAIMING),
    "a deletion leaves requests waiting": without(State.CLAIMING, Event.TOPIC_DELETED, Act.END_CLAIM),
    "the end of claims closes what was elected": row(State.OPENING, Event.NOT_ELECTED, State.CLOSED),
    "a log without a log": without(State.OPENING, Event.LOADED, Act.OPEN_LOG),
    "a second log": row(State.LEADING, Event.LOADED, State.LEADING, Act.OPEN_LOG),
    "a late checkpoint takes a resignation back": row(
        State.RESIGNING, Event.LOADED, State.LEADING, Act.OPEN_LOG
    ),
    "a late checkpoint opens what is closed": row(State.CLOSED, Event.LOADED, State.LEADING, Act.OPEN_LOG),
    "a stopped flush stops nothing": row(State.LEADING, Event.FLUSH_STOPPED, State.LEADING),
    "a hand-over that times out goes on": row(State.RESIGNING, Event.DRAIN_TIMED_OUT, State.RESIGNING),
    "a fenced leader goes on": row(State.LEADING, Event.FENCED, State.LEADING),
    "a fenced leader only halts": row(State.HALTED, Event.FENCED, State.HALTED),
    "fenced while it resigns, it goes on": row(State.RESIGNING, Event.FENCED, State.RESIGNING),
    "a loss leaves waiters": without(State.HALTED, Event.FENCED, Refuse),
    "a loss is served on": without(State.HALTED, Event.FLUSH_FAILED, Act.STOP_SERVING),
    "a loss of which the keeper does not learn": without(State.HALTED, Event.FLUSH_FAILED, Act.LOOK_AGAIN),
    "a loss that is counted twice": row(State.CLOSED, Event.FENCED, State.CLOSED, Act.COUNT_LOST),
    "a loss leaves readers": without(State.HALTED, Event.FENCED, Act.NOTIFY_READERS),
    "a hand-over leaves waiters": without(State.HALTED, Event.DRAINED, Refuse),
    "a hand-over leaves readers": without(State.RESIGNING, Event.DRAINED, Act.NOTIFY_READERS),
    "a hand-over is served on": without(State.RESIGNING, Event.DRAINED, Act.STOP_SERVING),
    "a hand-over that is not counted": without(State.RESIGNING, Event.DRAINED, Act.COUNT_HANDED_OVER),
    "a deleted topic resigns first": row(State.RESIGNING, Event.TOPIC_DELETED, State.RESIGNING),
    "a deleted topic is served on": without(State.LEADING, Event.TOPIC_DELETED, Act.STOP_SERVING),
    "a deletion leaves waiters": without(State.DELETING, Event.SETTLED, Refuse),
    "a deletion forgets a defect": row(State.DELETING, Event.FLUSH_FAILED, State.DELETING),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_table_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name](monkeypatch)
    for seed in range(500):
        try:
            walked(seed, 250).rest()
        except AssertionError:
            return
    pytest.fail("not found")
