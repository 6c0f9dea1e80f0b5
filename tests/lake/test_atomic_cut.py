"""Cuts against a brute force model: whatever overlaps, no committed transaction is in a cut by half."""

import random
from dataclasses import dataclass, field

import pytest

from kafscale.formats.partition_transactions import BatchKind
from kafscale.lake.atomic_cut import AtomicCut, Decided, SeenBatch
from kafscale.lake.ranges import difference, intersection, size, union

Place = tuple[str, int]
PLACES: tuple[Place, ...] = (("a", 0), ("a", 1), ("b", 0))


@dataclass(slots=True)
class Running:
    producer_id: int
    places: set[Place] = field(default_factory=set)
    decision: int = 0
    is_commit: bool = False
    records: dict[Place, list[int]] = field(default_factory=dict)


class Cluster:
    """Logs as lists of batches, grown step by step by producers, a coordinator and leaders.

    A producer that is `careless` sends on after it has asked for the decision.
    """

    def __init__(self, dice: random.Random, *, is_careless: bool = False) -> None:
        self.dice = dice
        self.is_careless = is_careless
        self.revision = 10
        self.logs: dict[Place, list[SeenBatch]] = {place: [] for place in PLACES}
        self.running: dict[int, Running] = {}
        self.all: list[Running] = []

    def end(self, place: Place) -> int:
        return self.logs[place][-1].last_offset + 1 if self.logs[place] else 0

    def step(self) -> None:
        producer_id = self.dice.randrange(5)
        one = self.running.get(producer_id)
        if one is None:
            self.running[producer_id] = one = Running(producer_id)
            self.all.append(one)
        if one.decision:
            if one.places and self.dice.random() < 0.7:
                self.mark(one, self.dice.choice(sorted(one.places)))
            elif not one.places:
                del self.running[producer_id]
        elif one.records and self.dice.random() < 0.35:
            self.revision += self.dice.randint(1, 3)
            one.decision, one.is_commit = self.revision, self.dice.random() < 0.7
            one.places = set(one.records)
        else:
            self.send(one, self.dice.choice(PLACES))

    def send(self, one: Running, place: Place) -> None:
        first = self.end(place)
        last = first + self.dice.randrange(3)
        self.logs[place].append(SeenBatch(BatchKind.TRANSACTIONAL, one.producer_id, first, last))
        one.records.setdefault(place, []).extend(range(first, last + 1))

    def mark(self, one: Running, place: Place) -> None:
        if self.is_careless and self.dice.random() < 0.5:
            self.send(one, place)
        kind = BatchKind.COMMIT if one.is_commit else BatchKind.ABORT
        offset = self.end(place)
        self.logs[place].append(SeenBatch(kind, one.producer_id, offset, offset, one.decision))
        one.places.discard(place)

    def stable(self, log: list[SeenBatch]) -> int:
        opened: dict[int, int] = {}
        for batch in log:
            if batch.kind is BatchKind.TRANSACTIONAL:
                opened.setdefault(batch.producer_id, batch.first_offset)
            else:
                opened.pop(batch.producer_id, None)
        return min(opened.values(), default=log[-1].last_offset + 1 if log else 0)

    def unmarked(self) -> set[Decided]:
        return {
            Decided(one.producer_id, one.decision)
            for one in self.running.values()
            if one.decision and one.places
        }


def cut_of(
    cluster: Cluster, exported: dict[Place, tuple[tuple[int, int], ...]], *, steps_between: int
) -> dict[Place, tuple[tuple[int, int], ...]]:
    """The offsets of the next cut. Between any two reads of the stores the cluster goes on."""
    earlier = {place: cluster.end(place) for place in PLACES}
    for _ in range(cluster.dice.randint(0, steps_between)):
        cluster.step()
    cut = AtomicCut(cluster.revision, cluster.unmarked())
    states: dict[Place, list[SeenBatch]] = {}
    places = list(PLACES)
    cluster.dice.shuffle(places)
    for place in places:
        for _ in range(cluster.dice.randint(0, steps_between)):
            cluster.step()
        states[place] = list(cluster.logs[place])
    ends = {place: cluster.stable(log) for place, log in states.items()}
    for place, log in states.items():
        begin = min(ends[place], earlier[place])
        tail = [one for one in log if one.first_offset >= begin]
        cut.add_tail(place, tail, earlier_end=earlier[place], stable_end=ends[place])
    for place, log in states.items():
        had = exported.get(place, ())
        body = [
            one
            for one in log
            if one.first_offset < ends[place] and difference(((one.first_offset, one.last_offset + 1),), had)
        ]
        cut.add_body(place, body)
    left_out = cut.left_out()
    return {
        place: difference(((0, ends[place]),), union(exported.get(place, ()), left_out.get(place, ())))
        for place in PLACES
    }


def check_whole(cluster: Cluster, exported: dict[Place, tuple[tuple[int, int], ...]], said: str) -> None:
    for one in cluster.all:
        if not one.is_commit:
            continue
        there = sum(
            size(intersection(exported.get(place, ()), ((offset, offset + 1),)))
            for place, offsets in one.records.items()
            for offset in offsets
        )
        total = sum(map(len, one.records.values()))
        assert there in (0, total), f"{there} of {total} records of {one}: {said}"


@pytest.mark.parametrize(
    "first_seed",
    [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(100, 3000, 100))],
)
def test_no_cut_has_a_transaction_by_half(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 100):
        dice = random.Random(seed)
        cluster = Cluster(dice)
        exported: dict[Place, tuple[tuple[int, int], ...]] = {}
        for _ in range(8):
            for _ in range(dice.randint(0, 40)):
                cluster.step()
            found = cut_of(cluster, exported, steps_between=dice.choice((0, 3, 15)))
            exported = {place: union(exported.get(place, ()), found[place]) for place in PLACES}
            check_whole(cluster, exported, f"seed {seed}")
        settle(cluster)
        found = cut_of(cluster, exported, steps_between=0)
        assert {place: union(exported.get(place, ()), found[place]) for place in PLACES} == {
            place: ((0, cluster.end(place)),) if cluster.logs[place] else () for place in PLACES
        }, f"seed {seed}"


def settle(cluster: Cluster) -> None:
    for one in list(cluster.running.values()):
        if not one.decision:
            cluster.revision += 1
            one.decision, one.places = cluster.revision, set(one.records)
        for place in sorted(one.places):
            cluster.mark(one, place)
    cluster.running.clear()


def test_a_producer_that_sends_on_after_its_commit() -> None:
    """Its markers are not written at R, so that the transaction waits for the next cut."""
    for seed in range(30):
        dice = random.Random(seed)
        cluster = Cluster(dice, is_careless=True)
        exported: dict[Place, tuple[tuple[int, int], ...]] = {}
        for _ in range(6):
            for _ in range(dice.randint(0, 40)):
                cluster.step()
            found = cut_of(cluster, exported, steps_between=3)
            exported = {place: union(exported.get(place, ()), found[place]) for place in PLACES}
            settled = [one for one in cluster.all if not (one.decision and one.places)]
            check_whole(
                _with(cluster, settled),
                exported,
                f"seed {seed}",
            )


def _with(cluster: Cluster, some: list[Running]) -> Cluster:
    found = Cluster(cluster.dice)
    found.all = some
    return found


def test_overlapping_transactions_do_not_hold_each_other() -> None:
    """Of producers that always overlap, what is decided is exported: nothing waits for a moment without any."""
    cluster = Cluster(random.Random(1))
    exported: dict[Place, tuple[tuple[int, int], ...]] = {}
    before: Running | None = None
    for producer_id in range(60):
        one = Running(producer_id)
        cluster.all.append(one)
        for place in PLACES:
            cluster.send(one, place)
        if before is not None:
            cluster.revision += 1
            before.decision, before.is_commit, before.places = cluster.revision, True, set(PLACES)
            for place in PLACES:
                cluster.mark(before, place)
            found = cut_of(cluster, exported, steps_between=0)
            cluster.running.clear()
            exported = {place: union(exported.get(place, ()), found[place]) for place in PLACES}
            check_whole(cluster, exported, "")
        before = one
    # All but the last two or so.
    waiting = [cluster.end(place) - size(exported[place]) for place in PLACES]
    assert max(waiting) < 12


def test_decisions_of_a_store_that_was_rebuilt_since() -> None:
    """Its revisions begin again: markers that were there before have higher ones than any of now."""
    cluster = Cluster(random.Random(1))
    cluster.revision = 5_000
    one = Running(1)
    cluster.all.append(one)
    for place in PLACES:
        cluster.send(one, place)
    one.decision, one.is_commit, one.places = 5_000, True, set(PLACES)
    for place in PLACES:
        cluster.mark(one, place)
    cluster.revision = 7
    found = cut_of(cluster, {}, steps_between=0)
    assert found == {place: ((0, cluster.end(place)),) for place in PLACES}


@pytest.mark.parametrize("mistake", ["revision", "tail"])
def test_the_model_finds_cuts_that_are_wrong(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mistake == "tail":
        monkeypatch.setattr(AtomicCut, "add_tail", lambda *_, **__: None)
    else:
        made = AtomicCut.__init__
        monkeypatch.setattr(AtomicCut, "__init__", lambda cut, *_: made(cut, 2**62))
    with pytest.raises(AssertionError, match="records of"):
        for first_seed in range(0, 1000, 100):
            test_no_cut_has_a_transaction_by_half(first_seed)
