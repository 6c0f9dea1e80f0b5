"""The topics of the rounds: new ones come, others leave, and a store that is away stops nothing."""

import pytest

from kafscale.errors import StoreError
from kafscale.lake.config_topics import FoundTopics, TopicToExport
from kafscale.lake.report import ExportReport
from kafscale.lake.round_topics import RoundTopics
from kafscale.lake.table_names import Tables


def found(*topics: str, **problems: str) -> FoundTopics:
    return FoundTopics(
        topics={one: TopicToExport(tables=Tables(rows=one, dead_letters=f"{one}_d")) for one in topics},
        problems=problems,
    )


class Said(ExportReport):
    """Keeps the lines about topics that leave and fail."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self.lines.append, lambda: 0.0)


def test_topics_come_and_leave_between_rounds() -> None:
    answers = iter([found("b", c="bad"), found("b")])
    said = Said()
    topics = RoundTopics(found("a", "b"), lambda: next(answers), said)
    assert list(topics.next().topics) == ["a", "b"]
    assert said.lines == []
    assert list(topics.next().topics) == ["b"]
    assert said.lines == ["a: is not exported any more", "c: FAILED: bad"]
    assert said.failed_topics == ["c"]
    topics.next()
    assert said.lines[2:] == ["c: is not exported any more"]
    assert said.failed_topics == []


def test_a_store_that_is_away_leaves_the_topics(caplog: pytest.LogCaptureFixture) -> None:
    def away() -> FoundTopics:
        raise StoreError("etcd does not answer")

    topics = RoundTopics(found("a"), away, Said())
    assert topics.next() == topics.next() == found("a")
    assert "etcd does not answer" in caplog.text
