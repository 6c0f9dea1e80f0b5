"""The table of consumer lag: what is in it, what falls out of it, and that it stays within its limit."""

import threading
import uuid
from collections.abc import Mapping

from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.lag import ConsumerLag
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import Changes, Delete, KeyValue

ORDERS, PAYMENTS = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(name: str, topic_id: uuid.UUID, state: TopicState = TopicState.ACTIVE) -> TopicRecord:
    return TopicRecord(name=name, topic_id=topic_id, partition_count=2, state=state)


class Followed:
    """A lag table over two topics, and the log end offsets that it asks for."""

    def __init__(self, max_series: int = 10) -> None:
        self.view = ClusterView("test")
        self.ends: dict[tuple[str, int], int] = {}
        self.lag = ConsumerLag(self.view, lambda name, index: self.ends.get((name, index)), max_series)
        self.show(topic("orders", ORDERS))
        self.show(topic("payments", PAYMENTS))

    def show(self, record: TopicRecord) -> None:
        item = KeyValue(key=keys.topic(record.name), value=encode_topic_record(record), mod_revision=1)
        self.view.apply(keys.TOPICS, Changes(puts_and_deletes=(item,), revision=1))

    def delete_topic(self, name: str) -> None:
        self.view.apply(keys.TOPICS, Changes(puts_and_deletes=(Delete(keys.topic(name)),), revision=1))

    def commit(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        self.lag.committed(group_id, stored(offsets))

    def samples(self) -> dict[tuple[str, str, str], int]:
        return dict(self.lag.samples())


def stored(
    offsets: Mapping[tuple[str, int], int], topic_id: uuid.UUID | None = None
) -> dict[tuple[str, int], CommittedOffset]:
    ids = {"orders": ORDERS, "payments": PAYMENTS}
    return {
        (name, index): CommittedOffset(topic_id=topic_id or ids[name], offset=offset, commit_timestamp_ms=0)
        for (name, index), offset in offsets.items()
    }


def test_lag_is_log_end_minus_committed_offset() -> None:
    followed = Followed()
    followed.ends = {("orders", 0): 100, ("orders", 1): 7}
    followed.commit("billing", {("orders", 0): 40, ("orders", 1): 7})
    assert followed.samples() == {("billing", "orders", "0"): 60, ("billing", "orders", "1"): 0}


def test_lag_grows_with_log_and_falls_with_commit() -> None:
    followed = Followed()
    followed.ends["orders", 0] = 10
    followed.commit("billing", {("orders", 0): 10})
    followed.ends["orders", 0] = 25
    assert followed.samples() == {("billing", "orders", "0"): 15}
    followed.commit("billing", {("orders", 0): 20})
    assert followed.samples() == {("billing", "orders", "0"): 5}


def test_an_offset_beyond_the_end_of_the_log_is_no_negative_lag() -> None:
    followed = Followed()
    followed.ends["orders", 0] = 10
    followed.commit("billing", {("orders", 0): 1000})
    assert followed.samples() == {("billing", "orders", "0"): 0}


def test_unknown_partition_has_no_sample_but_keeps_its_place() -> None:
    followed = Followed()
    followed.commit("billing", {("orders", 0): 3})
    assert followed.samples() == {}
    assert followed.lag.series_count == 1
    followed.ends["orders", 0] = 5
    assert followed.samples() == {("billing", "orders", "0"): 2}


def test_each_group_has_a_lag_of_its_own() -> None:
    followed = Followed()
    followed.ends["orders", 0] = 10
    followed.commit("billing", {("orders", 0): 1})
    followed.commit("shipping", {("orders", 0): 2})
    followed.lag.remove_group("billing")
    followed.lag.remove_group("never there")
    assert followed.samples() == {("shipping", "orders", "0"): 8}


def test_deleted_offsets_have_no_lag() -> None:
    followed = Followed()
    followed.ends = {("orders", 0): 10, ("orders", 1): 10}
    followed.commit("billing", {("orders", 0): 1, ("orders", 1): 2})
    followed.lag.remove_offsets("billing", [("orders", 0), ("payments", 1)])
    assert followed.samples() == {("billing", "orders", "1"): 8}


def test_lag_of_topic_ends_when_its_deletion_starts() -> None:
    followed = Followed()
    followed.ends = {("orders", 0): 10, ("payments", 0): 10}
    followed.commit("billing", {("orders", 0): 1, ("payments", 0): 2})
    followed.show(topic("orders", ORDERS, TopicState.DELETING))
    assert followed.samples() == {("billing", "payments", "0"): 8}
    assert followed.lag.series_count == 1


def test_recreated_topic_inherits_neither_lag_nor_late_commit() -> None:
    followed = Followed()
    followed.ends["orders", 0] = 10
    followed.commit("billing", {("orders", 0): 1})
    followed.delete_topic("orders")
    followed.show(topic("orders", uuid.UUID(int=3)))
    assert followed.samples() == {}
    followed.commit("billing", {("orders", 0): 2})
    assert followed.samples() == {}
    followed.lag.committed("billing", stored({("orders", 0): 4}, uuid.UUID(int=3)))
    assert followed.samples() == {("billing", "orders", "0"): 6}


def test_a_change_of_a_topic_that_leaves_it_there_leaves_its_lag() -> None:
    followed = Followed()
    followed.ends["orders", 0] = 10
    followed.commit("billing", {("orders", 0): 1})
    followed.show(TopicRecord(name="orders", topic_id=ORDERS, partition_count=3))
    assert followed.samples() == {("billing", "orders", "0"): 9}


def test_seeded_offset_does_not_replace_newer_commit() -> None:
    followed = Followed()
    followed.ends = {("orders", 0): 10, ("orders", 1): 10}
    followed.commit("billing", {("orders", 0): 9})
    followed.lag.seed("billing", stored({("orders", 0): 1, ("orders", 1): 2}))
    assert followed.samples() == {("billing", "orders", "0"): 1, ("billing", "orders", "1"): 8}


def test_beyond_the_limit_partitions_are_left_out_and_counted() -> None:
    followed = Followed(max_series=2)
    followed.ends["orders", 0] = 10
    for number in range(4):
        followed.commit(f"group-{number}", {("orders", 0): number})
        followed.commit(f"group-{number}", {("orders", 0): number + 1})
    assert followed.samples() == {("group-0", "orders", "0"): 9, ("group-1", "orders", "0"): 8}
    assert (followed.lag.series_count, followed.lag.omitted_count) == (2, 2)


def test_what_is_left_out_is_counted_no_further_than_the_limit() -> None:
    followed = Followed(max_series=2)
    assert not followed.lag.is_full
    for number in range(50):
        followed.commit(f"group-{number}", {("orders", 0): 1})
    assert (followed.lag.series_count, followed.lag.omitted_count) == (2, 2)
    assert followed.lag.is_full


def test_removed_groups_make_room_for_the_next_commit() -> None:
    followed = Followed(max_series=1)
    followed.ends["orders", 0] = 10
    followed.commit("first", {("orders", 0): 1})
    followed.commit("second", {("orders", 0): 2})
    followed.commit("third", {("orders", 0): 3})
    followed.lag.remove_group("first")
    assert followed.samples() == {}
    followed.commit("second", {("orders", 0): 4})
    assert followed.samples() == {("second", "orders", "0"): 6}
    assert followed.lag.omitted_count == 0  # no more than the limit was remembered: `third` was not
    followed.commit("third", {("orders", 0): 3})
    assert followed.lag.omitted_count == 1


def test_omitted_series_go_with_their_group_and_topic() -> None:
    followed = Followed(max_series=2)
    followed.commit("kept", {("payments", 0): 1, ("payments", 1): 1})
    followed.commit("gone", {("payments", 0): 1})
    followed.commit("other", {("orders", 0): 1})
    assert followed.lag.omitted_count == 2
    followed.lag.remove_group("gone")
    followed.delete_topic("orders")
    assert (followed.lag.series_count, followed.lag.omitted_count) == (2, 0)


def test_groups_that_come_and_go_leave_nothing_behind() -> None:
    followed = Followed(max_series=5)
    for number in range(200):
        followed.commit(f"group-{number}", {("orders", 0): 1, ("payments", 1): 1})
        followed.lag.remove_group(f"group-{number}")
    lag = followed.lag
    assert (lag.series_count, lag.omitted_count) == (0, 0)
    assert not lag._by_group and not lag._by_topic


def test_groups_commit_and_go_while_a_scrape_runs() -> None:
    followed = Followed(max_series=1000)
    followed.ends["orders", 0] = 10
    finished = threading.Event()
    bodies: list[int] = []

    def scrape() -> None:
        bodies.extend(len(followed.samples()) for _ in range(300))
        finished.set()

    thread = threading.Thread(target=scrape)
    thread.start()
    number = 0
    while not finished.is_set():
        followed.commit(f"group-{number % 400}", {("orders", 0): number})
        followed.lag.remove_group(f"group-{(number + 200) % 400}")
        number += 1
    thread.join()
    assert len(bodies) == 300
