"""Records that librdkafka leaves without an answer: its own defect alone excuses them, by its statistics."""

import json
from collections import Counter

import pytest

from tests.support.load import _sends_elsewhere

LEFT = Counter({("t", 4): 17})


def statistics(*parts: tuple[int, int, int]) -> list[str]:
    """Of the topic `t`: each partition's number, the broker that has it, and its leader."""
    told = {
        str(number): {"partition": number, "broker": broker, "leader": leader}
        for number, broker, leader in parts
    }
    return ["an older one", json.dumps({"topics": {"t": {"partitions": told}}})]


def test_partition_at_another_broker_is_the_defect() -> None:
    assert _sends_elsewhere(statistics((3, 2, 2), (4, 3, 1)), LEFT)


@pytest.mark.parametrize(
    "told",
    [
        statistics((4, 1, 1)),
        statistics((4, -1, 1)),
        statistics((4, 3, -1)),
        statistics((3, 3, 1), (4, 1, 1)),
        statistics((3, 3, 1)),
        [],
    ],
    ids=["leader", "no broker", "no leader", "another partition", "unknown", "no statistics"],
)
def test_anything_else_is_a_failure(told: list[str]) -> None:
    assert not _sends_elsewhere(told, LEFT)


def test_all_that_is_left_must_be_due_to_it() -> None:
    left = LEFT + Counter({("t", 3): 1})
    assert _sends_elsewhere(statistics((3, 2, 1), (4, 3, 1)), left)
    assert not _sends_elsewhere(statistics((3, 2, 2), (4, 3, 1)), left)
