"""Reading slices of many partitions, whatever happens to their objects after the read was planned."""

from collections.abc import Callable

import pytest

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.journal_keys import entry_key
from kafscale.reader import reads_ahead
from kafscale.reader.replanning import ExpiredRangeError
from kafscale.reader.shared_splits import SharedSplit
from kafscale.reader.topic_state import Freshness
from tests.spark_jobs.support.journal_topic import JournalTopic
from tests.spark_jobs.support.memory_topic import NAMESPACE, run


@pytest.fixture
def topic() -> JournalTopic:
    """Four partitions; the records know two entries, and two are behind them."""
    topic = JournalTopic()
    topic.flush()
    topic.flush(0, 2)
    topic.consolidate()
    topic.flush(1, 2, 3)
    topic.flush()
    return topic


def reads_of(topic: JournalTopic, key: str) -> int:
    return topic.objects.count("read_into", key) + topic.objects.count("get_range", key)


def test_everything_published_is_read_with_one_request_an_entry(topic: JournalTopic) -> None:
    splits = topic.splits()
    assert isinstance(splits[0], SharedSplit)
    assert len(splits) == 1
    assert topic.read(splits) == topic.values
    assert topic.objects.count("read_into") == 4


def test_heads_are_read_once_for_all_partitions(topic: JournalTopic) -> None:
    before = topic.objects.count("get_range")
    topic.log()
    # Two are behind the records, and there is no third one.
    assert topic.objects.count("get_range") - before == 3


def test_what_records_say_is_read_without_heads(topic: JournalTopic) -> None:
    before = topic.objects.count("get_range")
    log = topic.log(Freshness.CONSOLIDATED)
    assert [one.log_end_offset for one in log.partitions] == [6, 3, 6, 3]
    assert topic.objects.count("get_range") == before
    assert [one.log_end_offset for one in topic.log().partitions] == [9, 9, 12, 9]


def test_some_partitions_alone(topic: JournalTopic) -> None:
    wanted = {place: value for place, value in topic.values.items() if place[0] in (1, 3)}
    assert topic.read(topic.splits([1, 3])) == wanted


Change = Callable[[JournalTopic], object]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda topic: topic.consolidate(), id="consolidated"),
        pytest.param(lambda topic: topic.seal(), id="sealed"),
        pytest.param(lambda topic: topic.gather(), id="gathered"),
        pytest.param(lambda topic: (topic.gather(0, 1), topic.seal(2)), id="mixed"),
        pytest.param(lambda topic: (topic.gather(), topic.flush(), topic.seal()), id="gathered-then-sealed"),
    ],
)
def test_slices_that_moved_are_read_where_they_are_now(topic: JournalTopic, change: Change) -> None:
    splits, planned = topic.splits(), dict(topic.values)
    change(topic)
    topic.collect()
    assert topic.read(splits) == planned
    assert topic.read(topic.splits()) == topic.values


def test_gathered_slices_are_looked_up_together(topic: JournalTopic) -> None:
    splits = topic.splits()
    key = topic.gather()
    topic.collect()
    assert topic.read(splits) == topic.values
    assert reads_of(topic, key) == 1


def test_entries_that_go_while_the_split_is_read(
    topic: JournalTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads_ahead, "_AHEAD_REQUESTS", 1)
    (split,) = topic.splits()
    read = []
    with topic.batches(split) as found:
        for number, batches in enumerate(found):
            read.append((batches.partition, batches.first_offset, batches.next_offset))
            if number == 1:
                topic.gather(0, 1, 2)
                topic.seal(3)
                topic.collect()
    # The first entry was in memory.
    assert read[:4] == [(0, 0, 3), (1, 0, 3), (2, 0, 3), (3, 0, 3)]
    assert sorted(read[4:]) == [(0, 3, 9), (1, 3, 9), (2, 3, 12), (3, 3, 9)]


def test_an_entry_that_only_some_partitions_need(topic: JournalTopic) -> None:
    splits = topic.splits()
    topic.consolidate(0)
    topic.seal(1, 2, 3)
    topic.collect()
    assert run(topic.objects.keys("*.entry")) == [entry_key(NAMESPACE, "1-a", one) for one in (0, 1, 3)]
    assert topic.read(splits) == topic.values


def test_an_entry_that_is_lost_is_an_error(topic: JournalTopic) -> None:
    splits = topic.splits()
    key = entry_key(NAMESPACE, "1-a", 0)
    run(topic.objects.delete([key]))
    with pytest.raises(ObjectNotFoundError, match=key):
        topic.read(splits)


def test_slices_that_expired_are_an_error_that_names_them(topic: JournalTopic) -> None:
    splits = topic.splits()
    topic.seal()
    topic.collect()
    run(topic.stored.move_log_start(2, 12))
    with pytest.raises(ExpiredRangeError, match=r"offsets 0 to 2 of partition 2 .* log starts at 12 now"):
        topic.read(splits)


def _damaged(data: bytes) -> bytes:
    """The slices' first bytes changed, not their heads."""
    return data if data[:4] == b"KJNL" else bytes([data[0] ^ 1]) + data[1:]


def test_a_slice_damaged_in_flight_is_read_again(topic: JournalTopic) -> None:
    splits = topic.splits()
    topic.objects.lie("*2.entry", _damaged, times=1)
    assert topic.read(splits) == topic.values
    topic.objects.lie("*2.entry", _damaged)
    with pytest.raises(CorruptDataError, match=r"2\.entry: "):
        topic.read(splits)


def test_small_splits_have_it_all(topic: JournalTopic) -> None:
    for _ in range(5):
        topic.flush(value_bytes=9000)
    splits = topic.splits(split_bytes=64 * 1024)
    assert len(splits) > 3
    assert topic.read(splits) == topic.values
