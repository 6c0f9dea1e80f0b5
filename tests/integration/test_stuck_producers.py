"""Records that librdkafka leaves without an answer: its own defect alone excuses them, by its statistics."""

import json
from collections.abc import Collection

import pytest

from tests.support.cluster_load import sends_elsewhere
from tests.support.ledger import Place

LEADERS = {3: 2, 4: 1}
LEFT: list[Place] = [("t", 4)]


def statistics(*parts: tuple[int, int, int]) -> list[str]:
    """Of the topic `t`: each partition's number, the broker that has it, and its leader."""
    told = {
        str(number): {"partition": number, "broker": broker, "leader": leader}
        for number, broker, leader in parts
    }
    return ["an older one", json.dumps({"topics": {"t": {"partitions": told}}})]


def is_defect(told: list[str], left: Collection[Place] = LEFT) -> bool:
    return sends_elsewhere(told, left, lambda _: LEADERS)


def test_partition_at_another_broker_is_the_defect() -> None:
    assert is_defect(statistics((3, 2, 2), (4, 3, 1)))


@pytest.mark.parametrize(
    "told",
    [
        statistics((4, 1, 1)),
        statistics((4, -1, 1)),
        statistics((4, 3, -1)),
        statistics((4, 1, 3)),
        statistics((3, 3, 2), (4, 1, 1)),
        statistics((3, 3, 2)),
        [],
    ],
    ids=["leader", "no broker", "no leader", "old leader", "another partition", "unknown", "no statistics"],
)
def test_anything_else_is_a_failure(told: list[str]) -> None:
    assert not is_defect(told)


def test_all_that_is_left_must_be_due_to_it() -> None:
    left = [*LEFT, ("t", 3)]
    assert is_defect(statistics((3, 1, 2), (4, 3, 1)), left)
    assert not is_defect(statistics((3, 2, 2), (4, 3, 1)), left)
