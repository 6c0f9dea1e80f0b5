"""`kafscale fsck`: compares the two stores of a cluster, and repairs what is safe to repair."""

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.broker.stores import journal_place, open_stores
from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.cluster.journal_place import check_journal_place
from kafscale.commands.fsck_report import as_fields, as_text, outcome_lines, problems_left
from kafscale.errors import SettingError
from kafscale.formats.object_keys import topic_name_problem
from kafscale.ops.report_text import PacedLines
from kafscale.settings.broker import Settings
from kafscale.tools.fsck.check import UnknownTopicError, check_cluster
from kafscale.tools.fsck.findings import FsckReport
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.repair import Repairer, RepairOutcome
from kafscale.tools.fsck.repair_plan import Repair, plan_repairs
from kafscale.tools.fsck.topic_rest import TopicRest
from kafscale.tools.recovery.rebuild import patiently

EXIT_CLEAN: Final = 0
EXIT_PROBLEMS: Final = 3

MOST_CONCURRENT_READS: Final = 16
"""With `verify` each keeps a piece of a segment; more bring nothing where one process computes the checksums."""

PROGRESS_SEC: Final = 5.0

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckOptions:
    """The options of the command line."""

    verify: bool = False
    topics: Sequence[str] = ()
    as_json: bool = False
    repair: bool = False
    drop_missing: bool = False
    ignore_holes: bool = False


def run(settings: Settings, options: FsckOptions, output: Write, errors: Write) -> int:
    """Do what the options say; returns the exit status.

    `output` takes what was asked for, `errors` progress, both line by line. Raises `SettingError` for an option
    that is not legal, `StartupError`, `StoreError`, `CorruptDataError`.
    """
    for topic in options.topics:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise SettingError(f"--topic {topic!r} is not legal: {problem}")
    return asyncio.run(_Command(settings, options, output, errors).run())


class _Progress:
    """Says every few seconds how far the work has come."""

    def __init__(self, write: Write, clock: Callable[[], float]) -> None:
        self._lines = PacedLines(write, clock, PROGRESS_SEC)
        self._partitions = 0
        self._objects = 0
        self._bytes = 0

    def checked(self, partition: str, objects: int) -> None:
        self._partitions += 1
        self._objects += objects
        self._lines.say(f"checked {self._partitions} partitions, {self._objects} objects, now at {partition}")

    def verified(self, key: str, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._lines.say(f"read {self._bytes / 1e9:.1f} GB, now at {key}")


class _Command:
    def __init__(self, settings: Settings, options: FsckOptions, output: Write, errors: Write) -> None:
        self._settings = settings
        self._options = options
        self._output = output
        self._errors = errors

    async def run(self) -> int:
        options, settings = self._options, self._settings
        before_ms = round(time.time() * 1000) - settings.garbage_grace_sec * 1000
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await open_stores(settings, stack)
            place = journal_place(settings)
            await patiently(lambda: check_journal_place(objects, settings.s3_namespace, place))
            concurrency = min(settings.s3_concurrency, MOST_CONCURRENT_READS)
            reading = Reading(metadata, objects, settings.s3_namespace, concurrency)
            try:
                report = await check_cluster(
                    reading,
                    _Progress(self._errors, time.monotonic),
                    topics=options.topics,
                    verify=options.verify,
                    longest_transaction_ms=settings.transaction_max_timeout_ms,
                )
            except UnknownTopicError as problem:
                raise SettingError(f"--topic {problem.topic!r} is not legal: {problem}") from None
            repairs = plan_repairs(report, before_ms, drops_missing=options.drop_missing)
            if not options.as_json:
                left = problems_left(report, (), ignores_holes=options.ignore_holes)
                self._output(as_text(report, repairs, left))
            outcomes: list[RepairOutcome] = []
            if options.repair:
                repairer = Repairer(
                    reading,
                    before_ms=before_ms,
                    new_token=lambda: uuid.uuid4().hex,
                    topic_rest=TopicRest(reading, new_kafka_uuid),
                )
                outcomes = await repairer.carry_out(repairs)
            return self._finish(report, repairs, outcomes)

    def _finish(
        self, report: FsckReport, repairs: Sequence[Repair], outcomes: Sequence[RepairOutcome]
    ) -> int:
        options = self._options
        left = problems_left(report, outcomes, ignores_holes=options.ignore_holes)
        if options.as_json:
            self._output(json.dumps(as_fields(report, repairs, outcomes, left), indent=2))
        elif options.repair:
            for line in outcome_lines(outcomes):
                self._output(line)
        return EXIT_PROBLEMS if left else EXIT_CLEAN
