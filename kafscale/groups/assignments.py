"""The partitions in a consumer's assignment, as its leader sent it."""

from typing import Final

from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError, check_count, read_string

_VERSION_BYTES: Final = 2
_COUNT_BYTES: Final = 4
_INDEX_BYTES: Final = 4
_SMALLEST_TOPIC_BYTES: Final = 6
_MAX_ELEMENTS: Final = 100_000


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """The partitions by topic; None if it is no assignment of a consumer. Empty bytes are an empty assignment.

    Every version of a consumer's assignment begins with its version and its partitions.
    """
    if not assignment:
        return {}
    try:
        return _read(assignment)
    except (MalformedRequestError, *UNDERRUN_ERRORS):
        return None


def _read(data: bytes) -> dict[str, tuple[int, ...]]:
    topic_count, position = _count(data, _VERSION_BYTES, _SMALLEST_TOPIC_BYTES)
    assigned: dict[str, tuple[int, ...]] = {}
    for _ in range(topic_count):
        topic, position = read_string(data, position, "an assigned topic")
        count, position = _count(data, position, _INDEX_BYTES)
        end = position + count * _INDEX_BYTES
        indexes = (data[at : at + _INDEX_BYTES] for at in range(position, end, _INDEX_BYTES))
        assigned[topic] = tuple(int.from_bytes(index, "big", signed=True) for index in indexes)
        position = end
    return assigned


def _count(data: bytes, position: int, element_bytes: int) -> tuple[int, int]:
    """The length of the array at `position`, whose elements are in the data, and the position after it."""
    end = position + _COUNT_BYTES
    if end > len(data):
        raise MalformedRequestError(f"an assignment of {len(data)} bytes ends before byte {end}")
    count = int.from_bytes(data[position:end], "big", signed=True)
    check_count(count, element_bytes, data, end, _MAX_ELEMENTS)
    return count, end
