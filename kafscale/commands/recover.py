"""`kafscale recover`: plans the rebuild of the metadata store from the bucket, and carries it out."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafscale.broker.stores import journal_place, open_backups, open_stores
from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.cluster.journal_place import check_journal_place
from kafscale.cluster.marker import read_marker
from kafscale.cluster.topic_configs import validate
from kafscale.commands.recover_report import as_fields, as_text
from kafscale.errors import ObjectNotFoundError
from kafscale.formats.object_keys import topic_name_problem
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.report_text import PacedLines, time_text
from kafscale.protocol.error_codes import KafkaError
from kafscale.settings.broker import Settings
from kafscale.tools.backup.snapshots import Snapshots
from kafscale.tools.recovery.bucket_plan import BucketPlan
from kafscale.tools.recovery.rebuild import Progress, patiently, plan_rebuild
from kafscale.tools.recovery.restored import with_snapshot
from kafscale.tools.recovery.snapshot_contents import SnapshotContents, read_contents
from kafscale.tools.recovery.write import Rebuilt, RecoveryRefusedError, RecoveryWriter

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 3

NEWEST: Final = "newest"

MOST_CONCURRENT_READS: Final = 16
"""Each keeps a piece of a segment; more bring nothing where the checksums are computed by one process."""

PROGRESS_SEC: Final = 5.0

_ONLY_SOME: Final = (
    "Only the topics that were named are rebuilt. Rebuild the others that you want before brokers start: their "
    "names are free until then, and a new topic of such a name would meet the old one's objects."
)

_LEFT_OUT: Final = (
    "What was left out is garbage to the brokers: they delete it once it is older than "
    "KAFSCALE_GARBAGE_GRACE_SEC. Copy the damaged objects away before brokers start if you may still need them."
)

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """The options of the command line. `configs` are set on every topic that is written and not in the backup.

    `backup`: the key of a snapshot, or `NEWEST`; None to use none.
    """

    apply: bool = False
    topics: Sequence[str] = ()
    skip_damaged: bool = False
    as_json: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)
    backup: str | None = None


class OptionError(ValueError):
    """An option that cannot be used; the message names it and says what is legal."""


def check_options(options: RecoverOptions) -> None:
    """Raises `OptionError`."""
    if options.backup is not None and options.topics:
        raise OptionError("--backup is not legal with --topic: a snapshot comes back as a whole")
    for topic in options.topics:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise OptionError(f"--topic {topic!r} is not legal: {problem}")
    try:
        validate(options.configs)
    except KafkaError as problem:
        raise OptionError(f"--config is not legal: {problem}") from None


def run(settings: Settings, options: RecoverOptions, output: Write, errors: Write) -> int:
    """Do what the options say; returns the exit status.

    `output` takes what was asked for, `errors` progress and refusals, both line by line. Raises
    `StartupError`, `StoreError`, `CorruptDataError`.
    """
    return asyncio.run(_Command(settings, options, output, errors).run())


class _Progress:
    """Says every few seconds how far the work has come."""

    def __init__(self, write: Write, clock: Callable[[], float]) -> None:
        self._lines = PacedLines(write, clock, PROGRESS_SEC)
        self._segments = 0
        self._bytes = 0
        self._topics = 0

    def inspected(self, key: str, size_bytes: int) -> None:
        self._segments += 1
        self._bytes += size_bytes
        self._lines.say(f"checked {self._segments} segments, {self._bytes / 1e9:.1f} GB, now at {key}")

    def written(self, topic: str) -> None:
        self._topics += 1
        self._lines.say(f"wrote {self._topics} topics, now at {topic}")


class _Command:
    def __init__(self, settings: Settings, options: RecoverOptions, output: Write, errors: Write) -> None:
        self._settings = settings
        self._options = options
        self._output = output
        self._errors = errors

    async def run(self) -> int:
        options = self._options
        progress = _Progress(self._errors, time.monotonic)
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await open_stores(self._settings, stack)
            place = journal_place(self._settings)
            await patiently(lambda: check_journal_place(objects, self._settings.s3_namespace, place))
            plan = await self._plan(objects, stack, progress)
            writer = RecoveryWriter(
                metadata,
                objects,
                plan,
                configs=options.configs,
                new_uuid=new_kafka_uuid,
                progress=progress,
            )
            refusals = await writer.refusals(skip_damaged=options.skip_damaged)
            fields = as_fields(plan, refusals)
            if not options.as_json:
                self._output(as_text(plan, refusals, applying=options.apply))
            rebuilt = None
            if options.apply:
                try:
                    rebuilt = await writer.write(skip_damaged=options.skip_damaged)
                except RecoveryRefusedError as refused:
                    refusals = fields["refusals"] = list(refused.reasons)
                    for reason in refusals:
                        self._errors(f"refused: {reason}")
            self._report(rebuilt, fields)
        return EXIT_REFUSED if options.apply and rebuilt is None else EXIT_DONE

    async def _plan(
        self, objects: ObjectStore, stack: contextlib.AsyncExitStack, progress: Progress
    ) -> BucketPlan:
        contents = await self._contents(objects, stack)
        plan = partial(
            plan_rebuild,
            objects,
            self._settings.s3_namespace,
            topics=self._options.topics,
            concurrency=min(self._settings.s3_concurrency, MOST_CONCURRENT_READS),
            progress=progress,
        )
        if contents is None:
            return await plan()
        return with_snapshot(await plan(known=contents.known()), contents, time.time_ns() // 1_000_000)

    async def _contents(
        self, objects: ObjectStore, stack: contextlib.AsyncExitStack
    ) -> SnapshotContents | None:
        """The contents of the snapshot that the options name, None when they name none."""
        key = self._options.backup
        if key is None:
            return None
        snapshots = open_backups(self._settings, stack)
        if key == NEWEST:
            key = await self._newest(objects, snapshots)
        try:
            header, entries = await patiently(lambda: snapshots.read(key))
        except ObjectNotFoundError:
            raise OptionError(
                f"--backup {key} names no object of the backup bucket: `kafscale backup list` names the snapshots"
            ) from None
        self._errors(f"using snapshot {key}, of {time_text(header.created_ms)}")
        return read_contents(key, header, entries)

    async def _newest(self, objects: ObjectStore, snapshots: Snapshots) -> str:
        """Of the cluster that the bucket belongs to. Raises `OptionError`."""
        cluster_id = await patiently(lambda: read_marker(objects, self._settings.s3_namespace))
        found = await patiently(lambda: snapshots.find(cluster_id))
        clusters = sorted({one.cluster_id for one in found})
        if not found:
            whose = "" if cluster_id is None else f" of cluster {cluster_id}"
            raise OptionError(f"--backup {NEWEST} found no snapshot{whose} under {snapshots.folder}")
        if len(clusters) > 1:
            raise OptionError(
                f"--backup {NEWEST} found snapshots of the clusters {', '.join(clusters)} under {snapshots.folder}, "
                "and the bucket does not say whose it is: name the snapshot's key"
            )
        return found[-1].key

    def _report(self, rebuilt: Rebuilt | None, fields: dict[str, object]) -> None:
        if self._options.as_json:
            fields["rebuilt"] = None if rebuilt is None else _rebuilt_fields(rebuilt)
            self._output(json.dumps(fields, indent=2))
        elif rebuilt is not None:
            self._output("")
            self._output(
                f"Rebuilt {len(rebuilt.written)} topics in the metadata store of cluster {rebuilt.cluster_id}; "
                f"{len(rebuilt.already_there)} were there already."
            )
            if self._options.skip_damaged:
                self._output(_LEFT_OUT)
            self._output(_ONLY_SOME if self._options.topics else "Brokers may be started.")


def _rebuilt_fields(rebuilt: Rebuilt) -> dict[str, object]:
    return {
        "cluster_id": rebuilt.cluster_id,
        "written": list(rebuilt.written),
        "already_there": list(rebuilt.already_there),
    }
