"""Whatever members do, a share partition equals a table of single offsets, and every record comes to its end."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from kafscale.protocol.error_codes import KafkaError
from kafscale.share.partition.acknowledging import AcknowledgedBatch, AcknowledgeType, acknowledge
from kafscale.share.partition.acquiring import AcquireMode, LogBatch, Wanted, acquire
from kafscale.share.partition.releasing import end_locks, release_member
from kafscale.share.partition.runs import FINAL_STATES, RecordState
from kafscale.share.partition.share_partition import DurableState, ShareLimits, SharePartition
from tests.share.mistakes import MACHINE_MISTAKES, Plant
from tests.share.partition.offset_model import OffsetModel
from tests.support.nightly import by_day

WALKS_SEARCHED = 1_000
WALKS = by_day(75, by_night=8_000)
MEMBERS = ("a", "b", "c")
LOCK_MS = 1_000


class Walk:
    """A log, members, leaders that follow one another, and the model beside them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limits = ShareLimits(LOCK_MS, self.random.randrange(1, 5), self.random.randrange(1, 60))
        self.batches = list(self._log())
        self.now_ms = self.log_start = 0
        start = self.random.randrange(3)
        self.partition = SharePartition.of(DurableState(start), self.limits)
        self.model = OffsetModel(start, LOCK_MS, self.limits.max_deliveries)
        self.durable = self.partition.durable_state()
        self.durable_model = self._copy()

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            self.acquire, self.acquire, self.acquire, self.acknowledge, self.acknowledge, self.refused,
            self.let_time_pass, self.release, self.store, self.follow, self.delete,
            self.compact,
        ]  # fmt: skip
        partition, version = self.partition, self.partition.version
        before = partition.durable_state()
        self.random.choice(steps)()
        self.compare()
        if self.partition is partition and partition.version == version:
            self._only_deliveries_grew(before)

    def acquire(self) -> None:
        """Read a part of the log from where the partition says."""
        partition, model = self.partition, self.model
        read_from = partition.next_fetch_offset()
        read = [one for one in self.batches if one.last >= read_from][: self.random.randrange(5)]
        mode = self.random.choice(list(AcquireMode))
        wanted = Wanted(
            self.random.choice(MEMBERS), self.random.randrange(1, 30), self.random.randrange(1, 20), mode
        )
        had_room, in_flight = partition.can_acquire(), partition.in_flight
        acquired = acquire(partition, wanted, read_from, read, self.now_ms)
        offsets = [
            (offset, one.delivery_count) for one in acquired for offset in range(one.first, one.last + 1)
        ]
        assert [offset for offset, _ in offsets] == sorted({offset for offset, _ in offsets})
        given = dict(offsets)
        states = {offset: run.state for run in partition.runs for offset in range(run.first, run.last + 1)}
        for offset in range(max(read_from, model.start), partition.end_offset):
            state = states.get(offset, RecordState.ARCHIVED)
            if state is RecordState.ARCHIVED and self._is_gap(offset):
                model.finish_gap(offset)
            assert offset in model.records or offset in given, f"{offset} was given to no member"
        for offset, count in offsets:
            assert not self._is_gap(offset)
            assert model.give(offset, wanted.member_id, self.now_ms) == count
            # The next leader knows of all deliveries but this one: the count does not shrink.
            known = self.durable_model.records.get(offset)
            assert count <= (known.count if known else 0) + 1
        model.advance()
        if mode is AcquireMode.RECORD_LIMIT:
            assert len(offsets) <= wanted.max_records
        if partition.in_flight > in_flight:
            records = sum(1 for one in model.records if not self._is_gap(one))
            assert records <= 2 * self.limits.max_in_flight
        if had_room and read and read[0].has_records and wanted.max_records and read[0].first <= read_from:
            assert offsets, f"nothing of {read} from {read_from}"

    def acknowledge(self) -> None:
        """A member says something of some of what it has."""
        member = self.random.choice(MEMBERS)
        own = [one for one in self.model.owned_by(member) if self.random.random() < 0.7]
        said = [(offset, self.random.choice(list(AcknowledgeType))) for offset in own]
        acknowledge(self.partition, member, self._batches(said), self.now_ms)
        for offset, kind in said:
            self.model.say(offset, kind, self.now_ms)
        self.model.advance()

    def refused(self) -> None:
        """A member speaks of what it does not have: nothing changes, not even for the rest."""
        member = self.random.choice(MEMBERS)
        own = self.model.owned_by(member)
        others = [one for one in range(self.model.start, self.model.end + 3) if one not in own]
        if not others:
            return
        said = sorted([*own, self.random.choice(others)])
        version = self.partition.version
        with pytest.raises(KafkaError):
            acknowledge(
                self.partition,
                member,
                self._batches([(one, AcknowledgeType.ACCEPT) for one in said]),
                self.now_ms,
            )
        assert self.partition.version == version
        # What is finished may be acknowledged again.
        below = AcknowledgedBatch(
            max(self.model.start - 3, 0), self.model.start - 1, [AcknowledgeType.ACCEPT]
        )
        if below.first <= below.last:
            acknowledge(self.partition, member, [below], self.now_ms)

    def let_time_pass(self) -> None:
        self.now_ms += self.random.randrange(LOCK_MS)
        late = self.model.late(self.now_ms)
        deadline_ms = self.partition.next_deadline_ms()
        assert bool(late) == (deadline_ms is not None and deadline_ms <= self.now_ms)
        end_locks(self.partition, self.now_ms)
        for offset in late:
            self.model.give_back(offset)
        self.model.advance()

    def release(self) -> None:
        member = self.random.choice(MEMBERS)
        release_member(self.partition, member)
        for offset in self.model.owned_by(member):
            self.model.give_back(offset)
        self.model.advance()

    def store(self) -> None:
        self.durable, self.durable_model = self.partition.durable_state(), self._copy()
        self.partition.stored(self.partition.version)

    def follow(self) -> None:
        """Another leader goes on with what was stored; sometimes that is everything."""
        if self.random.random() < 0.7:
            self.store()
        counts = {run.first: run.delivery_count for run in self.durable.runs}
        assert all(run.state is not RecordState.ACQUIRED for run in self.durable.runs), counts
        self.partition = SharePartition.of(self.durable, self.limits)
        self.model = self.durable_model
        for record in self.model.records.values():
            record.member, record.until_ms = "", 0
            if record.state in (RecordState.ACQUIRED, RecordState.AVAILABLE):
                record.state = RecordState.AVAILABLE
                record.count = min(record.count, self.limits.max_deliveries - 1)
        self.model.advance()
        self._begin_at_log_start()
        self.store()

    def delete(self) -> None:
        """DeleteRecords, now and then."""
        if self.random.random() < 0.9:
            return
        offset = self.model.start + self.random.randrange(8)
        self.batches = [one for one in self.batches if one.last >= offset]
        self.log_start = offset
        self._begin_at_log_start()

    def _begin_at_log_start(self) -> None:
        self.partition.log_starts_at(self.log_start)
        for gone in range(self.model.start, self.log_start):
            self.model.records.pop(gone, None)
            self.model.finished[gone] = RecordState.ARCHIVED
        self.model.start = max(self.model.start, self.log_start)
        self.model.advance()

    def compact(self) -> None:
        """Batches lose their records, also some that are in flight; or they are not there any more."""
        batches = self.batches[:-1]
        for index in range(len(batches)):
            if self.random.random() < 0.02:
                batches[index] = replace(batches[index], has_records=False)
        self.batches = [one for one in batches if self.random.random() > 0.02] + self.batches[-1:]

    def compare(self) -> None:
        partition, model = self.partition, self.model
        assert (partition.start_offset, partition.end_offset) == (model.start, model.end)
        rows = [
            (offset, run.state, run.delivery_count, run.member_id, run.locked_until_ms)
            for run in partition.runs
            for offset in range(run.first, run.last + 1)
        ]
        assert rows == model.rows()
        runs = list(partition.runs)
        assert not any(after.continues(before) for before, after in pairwise(runs))
        assert all(len(run) > 0 for run in runs)
        assert not runs or runs[0].state not in FINAL_STATES

    def finish(self) -> None:
        """One member reads and accepts the rest: each record ends, none is left."""
        last = self.batches[-1].last if self.batches else -1
        for _ in range(2_000):
            self.now_ms += LOCK_MS
            end_locks(self.partition, self.now_ms)
            self.partition.stored(self.partition.version)
            read_from = self.partition.next_fetch_offset()
            read = [one for one in self.batches if one.last >= read_from][:3]
            for one in acquire(self.partition, Wanted("z", 10, 10), read_from, read, self.now_ms):
                batch = AcknowledgedBatch(one.first, one.last, [AcknowledgeType.ACCEPT])
                acknowledge(self.partition, "z", [batch], self.now_ms)
            if self.partition.start_offset > last and not self.partition.in_flight:
                return
        raise AssertionError(f"{list(self.partition.runs)} is left of {self.batches}")

    def _only_deliveries_grew(self, before: DurableState) -> None:
        """All that is stored is enough for the next leader: no end of a record, no lower start is lost."""
        now = {
            offset: (run.state, run.delivery_count)
            for run in self.partition.durable_state().runs
            for offset in range(run.first, run.last + 1)
        }
        for run in before.runs:
            for offset in range(run.first, run.last + 1):
                if offset not in now:
                    continue
                state, count = now[offset]
                assert count >= run.delivery_count
                assert run.state not in FINAL_STATES or state is run.state

    def _log(self) -> list[LogBatch]:
        batches, offset = [], self.random.randrange(4)
        for _ in range(self.random.randrange(1, 40)):
            if self.random.random() < 0.15:
                offset += self.random.randrange(5)
            last = offset + self.random.randrange(1, 12) - 1
            batches.append(LogBatch(offset, last, self.random.random() < 0.9))
            offset = last + 1
        return batches

    def _is_gap(self, offset: int) -> bool:
        return not any(one.first <= offset <= one.last and one.has_records for one in self.batches)

    def _batches(self, said: list[tuple[int, AcknowledgeType]]) -> list[AcknowledgedBatch]:
        batches: list[AcknowledgedBatch] = []
        for offset, kind in said:
            before = batches[-1] if batches else None
            if before is not None and before.last + 1 == offset and self.random.random() < 0.8:
                batches[-1] = AcknowledgedBatch(before.first, offset, [*before.types, kind])
            else:
                batches.append(AcknowledgedBatch(offset, offset, [kind]))
        return batches

    def _copy(self) -> OffsetModel:
        records = {offset: replace(one) for offset, one in self.model.records.items()}
        return replace(self.model, records=records, finished=dict(self.model.finished))


def walk(seed: int) -> None:
    """A walk of some hundred steps."""
    walked = Walk(seed)
    for _ in range(random.Random(seed).randrange(1, 200)):
        walked.step()
    walked.finish()


def test_it_equals_single_offsets_and_comes_to_its_end() -> None:
    first = random.randrange(2**32)
    print(f"seeds {first} to {first + WALKS - 1}")
    for seed in range(first, first + WALKS):
        try:
            walk(seed)
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", MACHINE_MISTAKES, ids=lambda plant: plant.__name__)
def test_the_walk_notices(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(WALKS_SEARCHED):
        try:
            walk(seed)
        except (AssertionError, KafkaError, pytest.fail.Exception):
            return
    pytest.fail(f"no walk of {WALKS_SEARCHED} notices")
