"""The state of a stream in its checkpoint."""

import json
from uuid import UUID

from spark_jobs.source.stream_offsets import StreamPositions, positions_of, started_at_of, to_offset

ID, OTHER = UUID(int=1), UUID(int=2)


def test_the_json_is_that_of_sparks_kafka_source() -> None:
    at = StreamPositions(positions={("b", 0): 7, ("a", 10): 3, ("a", 2): 0})
    assert json.dumps(to_offset(at)) == '{"a": {"2": 0, "10": 3}, "b": {"0": 7}}'
    assert positions_of(to_offset(at)) == at
    assert started_at_of(to_offset(at)) is None


def test_ids_of_topics_stand_beside_the_offsets() -> None:
    at = StreamPositions(positions={("a", 0): 7}, topic_ids={"a": ID})
    assert to_offset(at) == {"$topicIds": {"a": str(ID)}, "a": {"0": 7}}
    assert positions_of(json.loads(json.dumps(to_offset(at)))) == at


def test_the_first_end_says_where_the_stream_started() -> None:
    at, start = (StreamPositions(positions={("a", 0): one}, topic_ids={"a": ID}) for one in (7, 3))
    offset = json.loads(json.dumps(to_offset(at, start)))
    assert positions_of(offset) == at
    assert started_at_of(offset) == start


def test_topics_that_are_other_ones_later() -> None:
    names = ("same", "replaced", "gone", "unknown")
    before = StreamPositions(
        positions=dict.fromkeys(((one, 0) for one in names), 5), topic_ids=dict.fromkeys(names[:3], ID)
    )
    after = StreamPositions(positions={}, topic_ids={"same": ID, "replaced": OTHER, "unknown": ID})
    assert before.replaced_in(after) == {"replaced": ID}
    assert set(before.without({"replaced": ID})) == {("same", 0), ("gone", 0), ("unknown", 0)}
