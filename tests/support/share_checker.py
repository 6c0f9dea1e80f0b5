"""Judges what the members of a share group received and said; made to find records that were lost or came again.

Times are of the machine's one monotonic clock. A word is given *for sure* if its member was at work all the time
that a lock lasts, so that the record was not another's meanwhile: an acknowledgement of a record that others have
finished is answered without an error, in Kafka, too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tests.support.ledger import Record

LONG_BREAK_S = 1.0
"""Between two polls: what the client received before may have become another's."""
UNSEEN_DELIVERIES = 2
"""Deliveries that no member may have seen of a record whose deliveries are used up: it was killed too soon."""
NOT_OURS = ("INVALID_RECORD_STATE", "InvalidRecordState")
"""The answer for a record that its member does not have any more, as librdkafka and Java name it."""


class Word(StrEnum):
    """How a member ends its work on a record."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"

    @property
    def is_final(self) -> bool:
        """True if the record is finished with it."""
        return self is not Word.RELEASE


def wish(value: str, count: int) -> Word:
    """The word that each member has for this record at this delivery (`tests/support/share_clients.py`)."""
    kind = value.split("-")[0]
    if kind == "poison" or (kind == "again" and count == 1):
        return Word.RELEASE
    return Word.REJECT if kind == "bad" else Word.ACCEPT


@dataclass(slots=True, kw_only=True)
class Delivery:
    """A record in a member's hands. `round`: the member's poll that it came from, from 0.

    `told_s`: just before the client was given the word for it. `error`: of the answer; empty if it was durable.
    """

    member: str
    round: int
    partition: int
    offset: int
    value: str
    count: int
    at_s: float
    told_s: float | None = None
    answered_s: float | None = None
    error: str = ""

    @property
    def word(self) -> Word:
        """The member's word."""
        return wish(self.value, self.count)

    @property
    def is_durable(self) -> bool:
        """True if the word was answered without an error."""
        return self.answered_s is not None and not self.error

    def __str__(self) -> str:
        end = (
            "not answered"
            if self.answered_s is None
            else f"{self.error or 'answered'} at {self.answered_s:.3f}"
        )
        return (
            f"{self.member} {self.partition}:{self.offset} delivery {self.count} at {self.at_s:.3f} "
            f"(round {self.round}), {self.word}, {end}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEvidence:
    """`log`: the records of each partition at the end. `pauses`: when members were stopped, as begin and end.

    `limit`: the most deliveries of a record. `lock_s`: the lock's duration. `late`: deliveries after everything was
    finished, of records in `log`.
    """

    deliveries: Sequence[Delivery]
    log: Mapping[int, Sequence[Record]]
    pauses: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    limit: int
    lock_s: float
    late: Sequence[Delivery] = ()


@dataclass(frozen=True, slots=True)
class ShareReport:
    """`ends`: how many records ended how. `problems`: one line for each."""

    ends: Mapping[str, int]
    problems: Sequence[str]

    def check(self) -> None:
        """Raises AssertionError if there are problems."""
        assert not self.problems, f"{len(self.problems)} problems:\n" + "\n".join(self.problems[:10])


def examine(evidence: ShareEvidence) -> ShareReport:
    """Look for every kind of problem."""
    by_record: dict[tuple[int, int], list[Delivery]] = defaultdict(list)
    for one in evidence.deliveries:
        by_record[one.partition, one.offset].append(one)
    rounds = _Rounds(evidence)
    problems = [*_foreign(evidence, by_record)]
    for deliveries in by_record.values():
        found = [
            *_too_many(evidence, deliveries),
            *_came_again(rounds, deliveries),
            *_shrunk(rounds, deliveries),
        ]
        if found:
            all_of_it = "\n    ".join(map(str, sorted(deliveries, key=lambda one: one.at_s)))
            problems += [*found, f"all of its deliveries:\n    {all_of_it}"]
    ends: Counter[str] = Counter()
    for partition, records in evidence.log.items():
        for offset, value in records:
            end = _end(by_record.get((partition, offset), []), evidence.limit)
            ends[end or "lost"] += 1
            if end is None:
                told = "; ".join(map(str, by_record.get((partition, offset), []))) or "delivered to no member"
                problems.append(f"{partition}:{offset} {value!r} is not finished by any word: {told}")
    problems += [f"delivered after the group had finished all: {one}" for one in evidence.late]
    return ShareReport(dict(ends), problems)


class _Rounds:
    """When members polled, to know how old a delivery may be: clients give some of what they receive later."""

    def __init__(self, evidence: ShareEvidence) -> None:
        self._pauses = evidence.pauses
        self._lock_s = evidence.lock_s
        began_s: dict[str, dict[int, float]] = defaultdict(dict)
        for one in evidence.deliveries:
            begun = began_s[one.member]
            begun[one.round] = min(one.at_s, begun.get(one.round, one.at_s))
        self._smooth_since_s = {
            (member, number): since_s
            for member, begun in began_s.items()
            for number, since_s in _smooth_since(begun)
        }

    def received_after_s(self, one: Delivery) -> float:
        """A time before which the member did not have the record."""
        return one.at_s - self._lock_s if self._is_at_work(one, one.at_s) else float("-inf")

    def is_sure(self, one: Delivery) -> bool:
        """True if the record cannot have been another's when the word was answered."""
        if not one.is_durable or one.answered_s is None or one.answered_s - one.at_s > self._lock_s / 4:
            return False
        return self._is_at_work(one, one.answered_s)

    def _is_at_work(self, one: Delivery, until_s: float) -> bool:
        """True if the member was not stopped, or held up, for as long as a lock lasts before the delivery."""
        begin_s = one.at_s - self._lock_s
        pauses = self._pauses.get(one.member, ())
        return self._smooth_since_s[one.member, one.round] < begin_s and not any(
            pause_s < until_s and end_s > begin_s for pause_s, end_s in pauses
        )


def _smooth_since(began_s: Mapping[int, float]) -> Iterable[tuple[int, float]]:
    """By round: since when the member has polled without a long break; since ever if it never had one."""
    since_s, before_s = float("-inf"), None
    for number, at_s in sorted(began_s.items()):
        if before_s is not None and at_s - before_s > LONG_BREAK_S:
            since_s = at_s
        before_s = at_s
        yield number, since_s


def _foreign(
    evidence: ShareEvidence, by_record: Mapping[tuple[int, int], Sequence[Delivery]]
) -> Iterable[str]:
    """Each delivery is a record of the log."""
    log = {
        (partition, offset): value for partition, records in evidence.log.items() for offset, value in records
    }
    for place, deliveries in by_record.items():
        for one in deliveries:
            if log.get(place) != one.value.encode():
                yield f"not what the log has, {log.get(place)!r}: {one.value!r}, {one}"


def _too_many(evidence: ShareEvidence, deliveries: Sequence[Delivery]) -> Iterable[str]:
    for one in deliveries:
        if not 1 <= one.count <= evidence.limit:
            yield f"the limit is {evidence.limit} deliveries: {one}"


def _came_again(rounds: _Rounds, deliveries: Sequence[Delivery]) -> Iterable[str]:
    """A record that was finished for sure is not delivered any more."""
    for sure in deliveries:
        if not (sure.word.is_final and rounds.is_sure(sure)):
            continue
        assert sure.answered_s is not None
        for other in deliveries:
            if other is sure:
                continue
            if other.count > sure.count:
                yield f"finished by {sure}; but a later delivery: {other}"
            elif rounds.received_after_s(other) > sure.answered_s:
                yield f"finished by {sure}; but delivered afterwards: {other}"
            elif other.word.is_final and rounds.is_sure(other) and (other.answered_s or 0) > sure.answered_s:
                yield f"finished by {sure}; and again by {other}"


def _shrunk(rounds: _Rounds, deliveries: Sequence[Delivery]) -> Iterable[str]:
    """Whoever receives a record that was released for sure receives it with a higher count."""
    for sure in deliveries:
        if sure.word.is_final or not rounds.is_sure(sure):
            continue
        assert sure.answered_s is not None
        for other in deliveries:
            later = rounds.is_sure(other) and (other.told_s or 0) > sure.answered_s
            if other is sure or not (later or rounds.received_after_s(other) > sure.answered_s):
                continue
            if other.count <= sure.count:
                yield f"released by {sure}; and afterwards not one delivery more: {other}"


def _end(deliveries: Sequence[Delivery], limit: int) -> str | None:
    """How the record has ended; None if nothing explains that it is finished."""
    durable = {one.word for one in deliveries if one.is_durable and one.word.is_final}
    if durable:
        return "accepted" if Word.ACCEPT in durable else "rejected"
    highest = max((one.count for one in deliveries), default=0)
    if highest >= limit:
        return "deliveries used up"
    if any(one.word.is_final and one.told_s is not None and not _is_refused(one) for one in deliveries):
        return "told, not answered"
    return "deliveries used up, the last unseen" if highest >= limit - UNSEEN_DELIVERIES else None


def _is_refused(one: Delivery) -> bool:
    return any(name in one.error for name in NOT_OURS)
