"""The partitions of an assignment, from bytes that a client sent."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ConsumerProtocolAssignment

from kafscale.groups.assignments import assigned_partitions

TOPICS = st.dictionaries(
    st.text("abc-._", min_size=1, max_size=20), st.lists(st.integers(0, 2**31 - 1), max_size=9)
)


@given(TOPICS, st.sampled_from([0, 1, 2, 3]), st.binary(max_size=10))
def test_assignments_are_read_as_clients_write_them(
    topics: dict[str, list[int]], version: int, user_data: bytes
) -> None:
    part = ConsumerProtocolAssignment.TopicPartition
    written = ConsumerProtocolAssignment(
        assigned_partitions=[part(topic, indexes) for topic, indexes in topics.items()], user_data=user_data
    )
    data = bytes(written.encode(version=version))
    assert data[:2] == version.to_bytes(2, "big")
    expected = {topic: tuple(indexes) for topic, indexes in topics.items()}
    assert assigned_partitions(data) == expected


@given(st.binary(max_size=200))
def test_other_bytes_are_no_assignment_and_cost_little(data: bytes) -> None:
    found = assigned_partitions(data)
    assert found is None or sum(map(len, found.values())) <= len(data)


def test_empty_bytes_are_an_empty_assignment() -> None:
    assert assigned_partitions(b"") == {}


def test_counts_beyond_the_bytes_are_refused() -> None:
    assert assigned_partitions(b"\x00\x00\x7f\xff\xff\xff") is None
    assert assigned_partitions(b"\x00\x00\x00\x00\x00\x01\x00\x01a\x7f\xff\xff\xff") is None
    assert assigned_partitions(b"\x00\x00\xff\xff\xff\xff") is None
    assert assigned_partitions(b"\x00") is None
