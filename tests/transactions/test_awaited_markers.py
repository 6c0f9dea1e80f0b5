"""Markers that are awaited: each key is gone exactly when it is, however late a watch shows it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kafscale.metadata import keys
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.transactions.awaited_markers import PREFIXES, AwaitedMarkers

IDS = ("a", "b")
PARTITION, GROUP = PREFIXES


def wanted(transactional_id: str) -> list[str]:
    """The same keys for each transaction of a producer."""
    producer_id = 7 + IDS.index(transactional_id)
    partitions = [keys.partition_marker("orders", index, producer_id) for index in range(2)]
    return [*partitions, keys.group_marker("billing", producer_id)]


def put(key: str, revision: int) -> KeyValue:
    return KeyValue(key=key, value=b"", mod_revision=revision)


def changes(revision: int, *of: KeyValue | Delete) -> Changes:
    return Changes(puts_and_deletes=of, revision=revision)


def watched(awaited: AwaitedMarkers, revision: int = 1) -> AwaitedMarkers:
    for prefix in PREFIXES:
        assert awaited.apply(prefix, Snapshot(items=(), revision=revision)) == []
    return awaited


def test_a_transaction_is_done_when_its_last_key_is_gone() -> None:
    awaited, key = watched(AwaitedMarkers()), keys.partition_marker("orders", 0, 7)
    group = keys.group_marker("billing", 7)
    awaited.begin("a", [key, group], 5)
    assert awaited.apply(PARTITION, changes(5, put(key, 5))) == []
    assert awaited.apply(PARTITION, changes(6, Delete(key))) == []
    assert not awaited.is_done("a")
    assert awaited.apply(GROUP, changes(7, put(group, 5), Delete(group))) == ["a"]
    assert awaited.is_done("a")


def test_a_deletion_that_came_before_the_answer_counts() -> None:
    awaited, key = watched(AwaitedMarkers()), keys.partition_marker("orders", 0, 7)
    awaited.apply(PARTITION, changes(6, put(key, 5), Delete(key)))
    awaited.begin("a", [key], 5)
    assert awaited.is_done("a")


def test_a_deletion_of_the_transaction_before_does_not_count() -> None:
    awaited, key = watched(AwaitedMarkers()), keys.partition_marker("orders", 0, 7)
    awaited.apply(PARTITION, changes(3, put(key, 3)))
    awaited.begin("a", [key], 5)
    assert awaited.apply(PARTITION, changes(4, Delete(key))) == []
    assert not awaited.is_done("a")
    # In one piece with the put that followed it, and with something later.
    awaited = watched(AwaitedMarkers())
    awaited.apply(PARTITION, changes(3, put(key, 3)))
    awaited.begin("a", [key], 5)
    assert awaited.apply(PARTITION, changes(9, Delete(key), put(key, 5))) == []
    assert not awaited.is_done("a")


def test_a_snapshot_shows_what_is_gone() -> None:
    awaited, key = watched(AwaitedMarkers()), keys.partition_marker("orders", 0, 7)
    awaited.begin("a", [key], 5)
    assert awaited.apply(PARTITION, Snapshot(items=(), revision=4)) == []
    assert awaited.apply(PARTITION, Snapshot(items=(put(key, 5),), revision=6)) == []
    assert awaited.apply(PARTITION, Snapshot(items=(), revision=7)) == ["a"]


def test_a_read_counts_only_for_its_own_decision() -> None:
    awaited, key = watched(AwaitedMarkers()), keys.partition_marker("orders", 0, 7)
    awaited.begin("a", [key], 5)
    assert awaited.keys_of("a") == (5, (key,))
    awaited.begin("a", [key], 8)
    assert not awaited.found_gone("a", 5, [key])
    assert awaited.found_gone("a", 8, [key])
    awaited.forget("a")
    assert (len(awaited), awaited.keys_of("a")) == (0, (-1, ()))


class History:
    """Transactions of two producers in a store, and a watch that shows them late, in pieces, or as a snapshot."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.revision = 1
        self.there: dict[str, int] = {}
        self.decided = dict.fromkeys(IDS, 0)
        self.unseen: dict[str, list[tuple[int, KeyValue | Delete]]] = {prefix: [] for prefix in PREFIXES}
        self.awaited = watched(AwaitedMarkers())

    def step(self) -> None:
        transactional_id = self.random.choice(IDS)
        mine = [key for key in wanted(transactional_id) if key in self.there]
        match self.random.randrange(4):
            case 0 if not mine and self.is_settled(transactional_id):
                self.awaited.forget(transactional_id)  # The last one is complete.
                self.revision += 1
                self.decided[transactional_id] = self.revision
                for key in wanted(transactional_id):
                    self.there[key] = self.revision
                    self.note(key, put(key, self.revision))
                self.shown_before_the_answer()
                self.awaited.begin(transactional_id, wanted(transactional_id), self.revision)
            case 1 if mine:
                self.revision += 1
                key = self.random.choice(mine)
                del self.there[key]
                self.note(key, Delete(key))
            case 2 | 3:
                self.show(self.random.choice(PREFIXES))

    def is_settled(self, transactional_id: str) -> bool:
        """The next decision comes after the completion of the last one."""
        return self.decided[transactional_id] == 0 or self.awaited.is_done(transactional_id)

    def note(self, key: str, change: KeyValue | Delete) -> None:
        prefix = GROUP if key.startswith(GROUP) else PARTITION
        self.unseen[prefix].append((self.revision, change))

    def shown_before_the_answer(self) -> None:
        if self.random.random() < 0.3:
            self.show(self.random.choice(PREFIXES))

    def show(self, prefix: str) -> None:
        unseen = self.unseen[prefix]
        if not unseen:
            return
        if self.random.random() < 0.2:
            unseen.clear()
            items = tuple(put(key, at) for key, at in self.there.items() if key.startswith(prefix))
            self.take(prefix, Snapshot(items=items, revision=self.revision))
            return
        # Whole transactions of the store, one or more.
        last = self.random.choice(sorted({revision for revision, _ in unseen}))
        shown = [change for revision, change in unseen if revision <= last]
        self.unseen[prefix] = [one for one in unseen if one[0] > last]
        self.take(prefix, changes(last, *shown))

    def take(self, prefix: str, event: Snapshot | Changes) -> None:
        for transactional_id in self.awaited.apply(prefix, event):
            assert self.awaited.is_done(transactional_id)
        self.check()

    def check(self) -> None:
        """Nothing is done while a key of it is there."""
        for transactional_id in IDS:
            if self.awaited.is_done(transactional_id):
                assert not [key for key in wanted(transactional_id) if key in self.there]

    def show_all(self) -> None:
        for prefix in PREFIXES:
            while self.unseen[prefix]:
                self.show(prefix)


@given(st.integers(0, 2**32 - 1), st.integers(1, 80))
def test_a_key_is_gone_exactly_when_it_is(seed: int, steps: int) -> None:
    history = History(seed)
    for _ in range(steps):
        history.step()
        history.check()
    for key in list(history.there):
        history.revision += 1
        del history.there[key]
        history.note(key, Delete(key))
    history.show_all()
    for transactional_id, decided in history.decided.items():
        assert decided == 0 or history.awaited.is_done(transactional_id)
