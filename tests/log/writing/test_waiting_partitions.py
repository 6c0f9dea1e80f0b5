"""The partitions that wait for a flush."""

from unittest.mock import sentinel

from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.writing.waiting_partitions import WaitingPartitions

NAMES = st.sampled_from("abc")


@given(st.lists(st.tuples(NAMES, st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)))))
def test_order_and_sums_are_those_of_what_waits(
    changes: list[tuple[str, tuple[int, int] | None]],
) -> None:
    waiting, expected = WaitingPartitions(), dict[object, tuple[int, int]]()
    for name, counted in changes:
        partition = getattr(sentinel, name)
        if counted is None:
            waiting.forget(partition)
            expected.pop(partition, None)
        else:
            assert waiting.count(partition, *counted) == (partition in expected)
            expected[partition] = counted  # a dict, too, keeps the place of a key that it has
        assert list(waiting) == list(expected)
        assert waiting.with_bytes() == [(one, size_bytes) for one, (size_bytes, _) in expected.items()]
        assert waiting.size_bytes == sum(size_bytes for size_bytes, _ in expected.values())
        assert waiting.batches == sum(batches for _, batches in expected.values())
        assert len(waiting) == len(expected)
        assert (partition in waiting) == (partition in expected)
        assert not expected or waiting.first is next(iter(expected))
