"""`kafscale recover`: plans the rebuild of the metadata store from the bucket, and carries it out."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.metadata.cluster import new_kafka_uuid
from kafscale.metadata.topic_configs import validate
from kafscale.progress_lines import PacedLines
from kafscale.protocol.error_codes import KafkaError
from kafscale.recover_report import as_fields, as_text
from kafscale.settings import Settings
from kafscale.storage.object_keys import topic_name_problem
from kafscale.storage.recovery.rebuild import plan_rebuild
from kafscale.storage.recovery.write import Rebuilt, RecoveryRefusedError, RecoveryWriter
from kafscale.stores import open_stores

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 3

MOST_CONCURRENT_READS: Final = 16
"""Each holds a piece of a segment; more bring nothing where the checksums are computed by one process."""

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
    """What the command line says. `configs` are set on every topic that is written."""

    apply: bool = False
    topics: Sequence[str] = ()
    skip_damaged: bool = False
    as_json: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)


class OptionError(ValueError):
    """An option that cannot be used; the message names it and says what is legal."""


def check_options(options: RecoverOptions) -> None:
    """Raises `OptionError`."""
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
            plan = await plan_rebuild(
                objects,
                self._settings.s3_namespace,
                topics=options.topics,
                concurrency=min(self._settings.s3_concurrency, MOST_CONCURRENT_READS),
                progress=progress,
            )
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
