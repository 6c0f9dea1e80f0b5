"""Topics without news are told from others by their ends, without leases and tables; without Spark."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.formats.export_records import ExportProgress
from kafscale.formats.export_records import ExportState as ShownState
from kafscale.lake.events import EveryListener
from kafscale.lake.export_lease import hold_export
from kafscale.lake.export_state import ExportState
from kafscale.lake.report import ExportReport
from kafscale.objects.local.reader import LocalReader
from kafscale.reader.topic_state import Freshness
from spark_jobs.job.idle_topics import REMEMBERED_SEC, SHOWN_SEC, IdleTopics
from spark_jobs.source.store_access import StoreAccess
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

TABLE = "local.db.events"


class Job:
    """A job's look at one topic, and a table that says what a test wants."""

    def __init__(self, writer: TopicWriter) -> None:
        self.writer = writer
        self.now = 1000.0
        self.state: ExportState | None = None
        self.tables_read = 0
        self.stores = StoreAccess(writer.settings)
        self.report = ExportReport(lambda _: None, lambda: self.now)
        self.idle = IdleTopics(
            self.stores,
            writer.settings,
            Freshness.PUBLISHED,
            lambda _: True,
            self._read_state,
            EveryListener(self.report),
            lambda: self.now,
        )

    def _read_state(self, table: str, topic: str) -> ExportState | None:
        self.tables_read += 1
        return self.state

    def round(self) -> bool:
        """True if the topic is idle; if not, its export succeeds."""
        self.idle.begin_round(["events", "unknown"])
        assert not self.idle.is_idle("unknown", TABLE)
        is_idle = self.idle.is_idle("events", TABLE)
        if not is_idle:
            self.idle.finished("events", TABLE)
        return is_idle


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    writer.append(0, sent(3))
    writer.lead()
    return writer


@pytest.fixture
def job(writer: TopicWriter) -> Iterator[Job]:
    job = Job(writer)
    with closing(job.stores):
        yield job


def shown(
    writer: TopicWriter,
    positions: dict[int, int],
    state: ShownState = ShownState.FINISHED,
    *,
    age_sec: float = 0.0,
) -> None:
    """As the last exporter left it, so long ago."""
    with hold_export(writer.settings, "events", "test") as lease:
        lease.record(
            ExportProgress(
                topic="events",
                table=TABLE,
                positions=positions,
                log_end_offsets=positions,
                rows=3,
                dead_letters=0,
                updated_ms=1,
                complete_ms=round((time.time() - age_sec) * 1000),
                state=state,
            )
        )


def exported(topic_id: object) -> ExportState:
    return ExportState(
        topic="events",
        topic_id=str(topic_id),
        commit_id="c",
        starts={0: 0, 1: 0},
        exported={0: ((0, 3),)},
    )


def test_a_topic_is_idle_until_something_new_is_published(job: Job) -> None:
    assert [job.round() for _ in range(3)] == [False, True, True]
    job.writer.append(1, sent(1))
    assert [job.round() for _ in range(2)] == [False, True]
    job.writer.recreate()
    assert [job.round() for _ in range(2)] == [False, True]
    assert job.tables_read == 0
    job.now += REMEMBERED_SEC + 1
    assert not job.round(), "now and then a table is looked at"


def test_a_table_that_has_everything_is_enough_at_first(job: Job) -> None:
    shown(job.writer, {0: 3, 1: 0})
    job.state = exported(job.writer.topic_id())
    assert [job.round() for _ in range(2)] == [True, True]
    assert job.tables_read == 1
    (topic,) = job.report.summary_fields()["topics"]
    assert (topic["topic"], topic["finished"], topic["lag"]) == ("events", True, 0)


@pytest.mark.parametrize(
    "why", ["behind", "failed", "never", "long ago", "another topic", "rolled back", "no table"]
)
def test_any_doubt_is_left_to_the_export(job: Job, why: str) -> None:
    state = ShownState.FAILED if why == "failed" else ShownState.FINISHED
    if why != "never":
        age_sec = SHOWN_SEC + 1 if why == "long ago" else 0.0
        shown(job.writer, {0: 2 if why == "behind" else 3, 1: 0}, state, age_sec=age_sec)
    if why != "no table":
        job.state = exported("another" if why == "another topic" else job.writer.topic_id())
    if why == "rolled back":
        job.state = ExportState(topic="events")
    assert not job.round()


def test_stores_that_are_away_make_no_topic_idle(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.round()

    async def away(*_: object) -> bytes:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(LocalReader, "get_range", away)
        assert not job.round()


def test_a_journal_is_read_once_for_all_topics(
    writer: TopicWriter, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that its leader has not reported, which is not there, is asked for once, too."""
    reads: list[str] = []
    real = LocalReader.get_range

    async def counted(self: LocalReader, key: str, start: int, length: int) -> bytes:
        reads.append(key)
        return await real(self, key, start, length)

    monkeypatch.setattr(LocalReader, "get_range", counted)
    job.idle.begin_round(["events"] * 20)
    assert 0 < len(reads) == len(set(reads)), reads
