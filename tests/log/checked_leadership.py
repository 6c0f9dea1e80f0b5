"""One partition at one broker, driven as the broker drives it, over a store that others write to as well.

Everything that is checked is known here by itself, not by asking the machine: which batches were accepted, what
their producers were answered, what the store has, and what a partition has been told.
"""

import itertools
from dataclasses import dataclass, field

from kafscale.log.leadership.events import Act, Effect, Event, Refuse
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.leadership.states import State

PUBLISHED, UNKNOWN, REFUSED = "published", "unknown", "refused"
ME = "this broker"
ENDS = {Event.FENCED, Event.FLUSH_FAILED}


@dataclass
class Record:
    """The store's state of the partition: the leader epoch, the revision, and the published batches."""

    topic: int
    epoch: int
    revision: int
    batches: list[int] = field(default_factory=list)


class Store:
    """The record, if the topic exists, and who owns the partition."""

    def __init__(self) -> None:
        self._revisions = itertools.count(1)
        self.record: Record | None = Record(0, 0, next(self._revisions))
        self.last_epoch = 0
        self.owner: tuple[str, int] | None = None
        self.refused: set[int] = set()
        self.ever_published: set[int] = set()

    @property
    def record_now(self) -> Record:
        """The record, which is there."""
        assert self.record is not None
        return self.record

    def write(self, expected_revision: int, epoch: int, batches: tuple[int, ...] = ()) -> int | None:
        """Replace the record if it has this revision; returns the new one. Checks what must always hold."""
        record = self.record
        if record is None or record.revision != expected_revision:
            return None
        assert epoch >= self.last_epoch, "the leader epoch went back"
        assert not self.refused.intersection(batches), "a batch was refused, and published after that"
        assert not self.ever_published.intersection(batches), "a batch was published twice"
        self.ever_published.update(batches)
        self.last_epoch = epoch
        self.record = Record(record.topic, epoch, next(self._revisions), [*record.batches, *batches])
        return self.record.revision

    def claim(self, expected_revision: int, owner: str) -> Record | None:
        """The next epoch and the owner key, if no broker owns the partition."""
        if self.owner is not None or self.record is None:
            return None
        revision = self.write(expected_revision, self.record.epoch + 1)
        if revision is None:
            return None
        self.owner = (owner, revision)
        return self.record_now

    def delete_topic(self) -> None:
        """The record goes with the topic, and the owner key."""
        self.record, self.owner = None, None

    def create_topic(self, topic: int) -> None:
        """Another topic of the name, whose epoch goes on from the one before."""
        self.last_epoch += 1
        self.record = Record(topic, self.last_epoch, next(self._revisions))


@dataclass(eq=False)
class Publication:
    """A conditional write in flight. `outcome`: the revision, 0 when it was refused, None before it lands."""

    segment: tuple[int, ...]
    epoch: int
    expected_revision: int
    outcome: int | None = None


@dataclass(eq=False)
class Flush:
    """One segment from its seal on. `is_next`: it waits for nothing but its turn to write the record."""

    segment: tuple[int, ...]
    is_next: bool = False
    publication: Publication | None = None


class Term:
    """A partition as this broker has it: from an election on, or while it follows."""

    def __init__(self, leadership: PartitionLeadership, record: Record) -> None:
        self.leadership = leadership
        self.topic, self.epoch, self.revision = record.topic, record.epoch, record.revision
        self.claimed_at = record.revision
        self.log_is_open = False
        self.buffered: list[int] = []
        self.sealed: list[tuple[int, ...]] = []
        self.in_doubt: tuple[int, ...] = ()
        self.flushes: list[Flush] = []
        self.resignations = 0
        self.timed_out: list[Flush] | None = None
        self.readers = 0
        self.counted: list[Effect] = []
        # What it has been told.
        self.was_asked_to_resign = self.was_stopped = self.is_deleted = self.was_closed = False

    @property
    def state(self) -> State:
        return self.leadership.state

    @property
    def waiting(self) -> set[int]:
        """Batches without an answer."""
        return {*self.buffered, *itertools.chain(*self.sealed)}


class CheckedLeadership:
    """The broker's part. A step of a walk calls one of these; each raises `AssertionError` on a broken promise."""

    def __init__(self) -> None:
        self.store = Store()
        self.answers: dict[int, str] = {}
        self.accepted: set[int] = set()
        self.terms: list[Term] = []
        self.served: Term | None = None
        self.claim: PartitionLeadership | None = None
        self.claims_to_end: list[PartitionLeadership] = []
        self.batches = itertools.count(1)
        self.topics = itertools.count(1)
        self.deleted_topics: set[int] = set()
        self.looks: list[Term] = []
        self.late: list[Publication] = []
        self.reached: set[tuple[State, Event]] = set()

    # --- events and effects

    def apply(self, term: Term, event: Event) -> None:
        """Let the event happen, as the driver does it."""
        before = term.state
        self.reached.add((before, event))
        had_log = term.log_is_open
        term.was_asked_to_resign |= event is Event.RESIGN
        term.was_stopped |= had_log and event in (Event.FLUSH_STOPPED, Event.DRAIN_TIMED_OUT)
        term.is_deleted |= event is Event.TOPIC_DELETED
        for effect in term.leadership.apply(event):
            self._carry_out(term, effect)
        if had_log and event in ENDS:
            assert term.state is State.CLOSED, f"{before} goes on after {event}"
        assert not term.was_closed or term.state is State.CLOSED, "what was closed lives again"
        if term.state is State.CLOSED and not term.was_closed:
            term.was_closed = True
            assert not term.readers, "readers still wait for what will not come"
        self.check()

    def _carry_out(self, term: Term, effect: Effect) -> None:
        match effect:
            case Refuse():
                self._close_log(term)
            case Act.SERVE:
                assert self.served is None, "two are served"
                self.served = term
            case Act.STOP_SERVING:
                assert self.served is term, "it was not served"
                self.served = None
            case Act.END_CLAIM:
                self._end_claim()
            case Act.OPEN_LOG:
                assert not term.log_is_open, "the log was replaced"
                term.log_is_open = True
            case Act.COUNT_ELECTED | Act.COUNT_HANDED_OVER | Act.COUNT_LOST:
                term.counted.append(effect)
            case Act.LOOK_AGAIN:
                self.looks.append(term)
            case Act.NOTIFY_READERS:
                term.readers = 0

    def _close_log(self, term: Term) -> None:
        """As `PartitionLog.fail`: a publication whose outcome is not known is the exception."""
        if term.log_is_open:
            for batch in term.waiting:
                self._answer(batch, UNKNOWN if batch in term.in_doubt else REFUSED)
            term.buffered, term.sealed, term.in_doubt = [], [], ()
            term.log_is_open = False

    def _answer(self, batch: int, answer: str) -> None:
        assert batch not in self.answers, f"{batch} was answered twice"
        self.answers[batch] = answer
        is_published = batch in self.store.ever_published
        assert is_published or answer != PUBLISHED, f"{batch} was acknowledged, and is not published"
        assert not (is_published and answer == REFUSED), f"{batch} was refused, and is published"
        if answer == REFUSED:
            self.store.refused.add(batch)

    def check(self) -> None:
        """Invariants after every event."""
        assert self.claim is None or self.claim.state is State.CLAIMING, "its end was not said"
        for term in self.terms:
            state = term.state
            if state is State.FOLLOWING:
                continue
            serves = state in (State.OPENING, State.LEADING, State.RESIGNING, State.HALTED)
            assert (self.served is term) is serves, f"{state}, and {'not ' if serves else ''}served"
            has_log = state in (State.LEADING, State.HALTED)
            assert term.log_is_open or not has_log, f"{state} without a log"
            assert not (term.is_deleted and serves), "a deleted topic is served"
            ends = term.counted[1:]
            assert term.counted[:1] == [Act.COUNT_ELECTED]
            if state is State.CLOSED:
                assert not term.log_is_open and not term.waiting, "waiters without an answer"
                expected = [[]] if term.is_deleted else [[Act.COUNT_HANDED_OVER], [Act.COUNT_LOST]]
                assert ends in expected, f"counted as {ends}"
            else:
                assert not ends, f"counted as {ends}"
            assert self.looks.count(term) == ends.count(Act.COUNT_LOST), "the keeper does not know"

    # --- claims

    def begin_claim(self) -> None:
        """As the keeper: one at a time, and of what is not served here."""
        if self.claim is None and self.served is None and not self.claims_to_end:
            self.claim = PartitionLeadership()
            self.claims_to_end.append(self.claim)

    def _end_claim(self) -> None:
        assert self.claim is not None, "the end of a claim was said twice"
        self.claim = None

    def elected(self, record: Record) -> None:
        """The claim's answer has arrived. Without the topic, which may be gone by now, there is nothing to lead."""
        if self.claim is not None:
            assert record.topic not in self.deleted_topics, (
                "a deleted topic is led, perhaps under its next one's name"
            )
            term = Term(self.claim, record)
            self.terms.append(term)
            self.apply(term, Event.ELECTED)

    def end_claims(self) -> None:
        """Partitions claimed together have their outcome; what is not led by now is not going to be."""
        for leadership in self.claims_to_end:
            self.reached.add((leadership.state, Event.NOT_ELECTED))
            for effect in leadership.apply(Event.NOT_ELECTED):
                assert effect is Act.END_CLAIM
                self._end_claim()
        self.claims_to_end.clear()
        assert self.claim is None, "a request waits for a claim that has ended"
        self.check()

    # --- following

    def follow(self) -> None:
        """A reader asks for what another broker leads."""
        if self.store.record is not None:
            self.terms.append(Term(PartitionLeadership(State.FOLLOWING), self.store.record))

    def see_record(self, term: Term) -> None:
        """A reader, or a watch, shows the record as it is now: only a follower may take it over."""
        record = self.store.record
        if record is not None and record.topic == term.topic and term.leadership.rights.follows:
            term.revision = record.revision

    # --- the log

    def append(self, term: Term) -> None:
        """A producer's batch, accepted if the state gives the right to."""
        if term.leadership.rights.appends:
            assert term.log_is_open and term is self.served, "accepted by no leader"
            assert not (term.was_asked_to_resign or term.was_stopped), "accepted too late"
            batch = next(self.batches)
            self.accepted.add(batch)
            term.buffered.append(batch)

    def seal(self, term: Term) -> None:
        """A flush begins, if one may."""
        if term.buffered and term.leadership.rights.seals and len(term.sealed) < 2:
            assert not term.was_stopped and not term.is_deleted, "sealed behind what is not published"
            segment = tuple(term.buffered)
            term.buffered.clear()
            term.sealed.append(segment)
            term.flushes.append(Flush(segment))

    def go_on(self, term: Term) -> None:
        """The oldest flush takes its next step on the way to the store."""
        flush = term.flushes[0]
        publishes = term.leadership.rights.publishes
        if flush.publication is not None:
            self.land(flush.publication)
        elif flush.is_next:
            if publishes:
                term.in_doubt = flush.segment
                flush.publication = Publication(flush.segment, term.epoch, term.revision)
            else:
                self.stop_flush(term, flush, Event.FENCED)
        elif publishes and term.sealed[:1] == [flush.segment]:
            flush.is_next = True
        else:
            self.stop_flush(term, flush)

    def land(self, publication: Publication) -> None:
        """The store carries it out, or refuses it."""
        if publication.outcome is None:
            written = self.store.write(publication.expected_revision, publication.epoch, publication.segment)
            publication.outcome = written or 0

    def answer(self, term: Term, *, is_lost: bool) -> None:
        """The store's answer to the oldest flush arrives, or is lost, and the record is read back."""
        flush = term.flushes[0]
        publication, record = flush.publication, self.store.record
        if publication is None or (publication.outcome is None and not is_lost):
            return
        if publication.outcome is None:
            if record is not None and record.revision == term.revision:
                publication.expected_revision = term.revision  # Not applied: once more.
                return
            publication.outcome = 0
        is_replaced = record is None or record.revision != publication.outcome
        if publication.outcome:
            self._published(term, flush, publication.outcome)
        elif term.in_doubt == flush.segment:
            term.in_doubt = ()  # The successor's record shows that it is not published.
        if not publication.outcome or (is_lost and is_replaced):
            self.stop_flush(term, flush, Event.FENCED)
        else:
            term.flushes.remove(flush)

    def _published(self, term: Term, flush: Flush, revision: int) -> None:
        term.revision = revision
        if term.log_is_open:
            assert term.sealed.pop(0) == flush.segment
            term.in_doubt = ()
            for batch in flush.segment:
                self._answer(batch, PUBLISHED)

    def stop_flush(self, term: Term, flush: Flush, *why: Event) -> None:
        """It ends without its segment being known to be published; what it has sent may still land."""
        if flush.publication is not None and flush.publication.outcome is None:
            self.late.append(flush.publication)
        term.flushes.remove(flush)
        for event in (Event.FLUSH_STOPPED, *why):
            self.apply(term, event)

    # --- the end of a term

    def resign(self, term: Term) -> None:
        """Another broker is to lead, or the lease has ended: perhaps both."""
        term.resignations += 1
        self.apply(term, Event.RESIGN)

    def resigned(self, term: Term, *, in_time: bool) -> None:
        """The drain has ended, or its time is over, and what is in flight is cancelled next. Then the key goes."""
        if term.timed_out is not None:
            for flush in [one for one in term.timed_out if one in term.flushes]:
                self.stop_flush(term, flush)
            term.timed_out = None
        elif term.flushes or (term.buffered and term.leadership.rights.seals):
            if not in_time:
                self.apply(term, Event.DRAIN_TIMED_OUT)
                term.timed_out = list(term.flushes)
            return
        self.apply(term, Event.DRAINED)
        term.resignations -= 1
        if self.store.owner == (ME, term.claimed_at):
            self.store.owner = None

    def show_deletion(self, topic: int) -> None:
        """The view shows that the topic is gone."""
        self.deleted_topics.add(topic)
        if self.claim is not None:
            self.reached.add((self.claim.state, Event.TOPIC_DELETED))
            for effect in self.claim.apply(Event.TOPIC_DELETED):
                assert effect is Act.END_CLAIM
                self._end_claim()
        if self.served is not None and self.served.topic == topic:
            self.apply(self.served, Event.TOPIC_DELETED)

    def settle(self, term: Term) -> None:
        """The flushes of a deleted topic have had their time."""
        self.cancel_flushes(term)
        self.apply(term, Event.SETTLED)

    def cancel_flushes(self, term: Term) -> None:
        """Every task of the partition is cancelled."""
        for flush in tuple(term.flushes):
            self.stop_flush(term, flush)
