"""`kafscale cat`: prints a topic's records, straight from the stores."""

import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from kafscale.commands.cat_lines import LineFormat, line_of
from kafscale.memory.slab import SlabPool
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.bounds import Bound, Edge, ReadOptionError
from kafscale.reader.bucket_alone import BucketAlone
from kafscale.reader.reads_ahead import POOL_BYTES
from kafscale.reader.records import PlacedRecord, records_of
from kafscale.reader.requests import plan_of, source_of
from kafscale.reader.sources import ReadSource
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.topic_batches import planned_batches, topic_batches
from kafscale.reader.topic_plan import ReadRequest, TopicPlan, TopicPlanner
from kafscale.reader.topic_state import UnknownTopicError

EXIT_DONE: Final = 0
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
"""As of a process that SIGINT or SIGPIPE ended."""

POLL_SEC: Final = 1.0
_BUFFER_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CatOptions:
    """The options of the command line. `source` None: the stores that the settings name.

    `key`: only records with this key; `grep`: only those with a value that has a match.
    """

    source: str | None
    request: ReadRequest
    line_format: LineFormat = LineFormat.JSON
    key: bytes | None = None
    grep: re.Pattern[bytes] | None = None
    max_records: int | None = None
    follow: bool = False


def run_cat(
    options: CatOptions, environment: Mapping[str, str], sleep: Callable[[float], None] = time.sleep
) -> int:
    """Print to standard output; returns the exit status. Raises `KafscaleError` of every kind."""
    output = sys.stdout.buffer
    source = source_of(options.source, options.request.topic, options={}, environment=environment)
    if options.follow and isinstance(source, BucketAlone):
        raise ReadOptionError(
            f"--follow is not legal with {options.source}: what is new only the metadata store says; set "
            "KAFSCALE_ETCD_ENDPOINTS"
        )
    cat = _Cat(options, source, output, for_terminal=sys.stdout.isatty())
    try:
        if options.follow:
            cat.follow(sleep)
        else:
            cat.once()
        output.flush()
    except BrokenPipeError:
        # What is still buffered would meet the closed pipe once more as the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        # It is how following ends.
        return EXIT_DONE if options.follow else EXIT_INTERRUPTED
    return EXIT_DONE


class _Cat:
    def __init__(
        self, options: CatOptions, source: ReadSource, output: BinaryIO, *, for_terminal: bool
    ) -> None:
        self._options = options
        self._source = source
        self._output = output
        self._line = line_of(options.line_format, options.request.topic, for_terminal=for_terminal)
        self._printed = 0

    def once(self) -> None:
        """Print what is published now."""
        plan = plan_of(self._source, self._options.request)
        with closing(topic_batches(self._source, plan)) as found:
            for batches in found:
                if not self._print(records_of(batches)):
                    return

    def follow(self, sleep: Callable[[float], None]) -> None:
        """Print what is published now, and then what is new, until there were as many as wanted."""
        request = self._options.request
        namespace = self._source.settings.s3_namespace
        pool = SlabPool(POOL_BYTES)
        with StoreThread(self._source) as stores:
            planner = stores.call(_planner(namespace, request))
            plan = stores.start(planner.plan(request)).result()
            topic_id = plan.topic_id
            while True:
                if plan.topic_id != topic_id:
                    raise UnknownTopicError(
                        f"topic {request.topic!r} was deleted, and there is another of its name now"
                    )
                with closing(planned_batches(namespace, plan, stores, pool)) as found:
                    for batches in found:
                        if not self._print(records_of(batches)):
                            return
                self._output.flush()
                request, positions = _behind(request, plan)
                while not stores.start(planner.has_news(request, positions)).result():
                    sleep(POLL_SEC)
                plan = stores.start(planner.plan(request)).result()

    def _print(self, found: Iterator[PlacedRecord]) -> bool:
        """False if no more are wanted."""
        options, waiting = self._options, 0
        lines: list[bytes] = []
        is_enough = False
        for placed in found:
            record = placed.record
            if options.key is not None and record.key != options.key:
                continue
            if options.grep is not None and (record.value is None or not options.grep.search(record.value)):
                continue
            line = self._line(placed)
            lines += (line, b"\n")
            waiting += len(line)
            self._printed += 1
            is_enough = self._printed == options.max_records
            if waiting > _BUFFER_BYTES or is_enough:
                self._output.write(b"".join(lines))
                lines, waiting = [], 0
            if is_enough:
                break
        self._output.write(b"".join(lines))
        return not is_enough


def _planner(
    namespace: str, request: ReadRequest
) -> Callable[[MetadataReader, ListingReader], Awaitable[TopicPlanner]]:
    async def made(metadata: MetadataReader, objects: ListingReader) -> TopicPlanner:
        return TopicPlanner(metadata, objects, namespace, request.topic, request.isolation_level)

    return made


def _behind(request: ReadRequest, plan: TopicPlan) -> tuple[ReadRequest, dict[int, int]]:
    """The request for what follows the plan, and the offsets that it begins at.

    Partitions that are new begin at their start.
    """
    positions = {one.partition: one.next_offset for one in plan.ranges}
    return replace(request, start=Bound(Edge.EARLIEST, positions), end=Bound(Edge.LATEST)), positions
