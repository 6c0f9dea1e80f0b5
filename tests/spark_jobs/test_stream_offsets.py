"""The state of a stream in its checkpoint."""

import json

from spark_jobs.source.stream_offsets import positions_of, started_at_of, to_offset


def test_the_json_is_that_of_sparks_kafka_source() -> None:
    positions = {("b", 0): 7, ("a", 10): 3, ("a", 2): 0}
    assert json.dumps(to_offset(positions)) == '{"a": {"2": 0, "10": 3}, "b": {"0": 7}}'
    assert positions_of(to_offset(positions)) == positions
    assert started_at_of(to_offset(positions)) is None


def test_the_first_end_says_where_the_stream_started() -> None:
    offset = json.loads(json.dumps(to_offset({("a", 0): 7}, {("a", 0): 3})))
    assert positions_of(offset) == {("a", 0): 7}
    assert started_at_of(offset) == {("a", 0): 3}
