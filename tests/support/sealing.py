"""Makes segments of what a broker has in its journal, at once: for tests that look at records or `.kfs` objects."""

import random
from typing import Any

from kafscale.journal.partition_state import unsealed
from kafscale.log.log_parts import LogParts
from kafscale.log.partition import Partition
from tests.support.metrics_page import scrape
from tests.support.waiting import wait_until

SEALED_SOON: dict[str, Any] = {"seal_interval_ms": 100, "seal_max_age_ms": 1000}
"""Settings of a broker in a process of its own: what it takes is in a `.kfs` a second later."""
WORTHWHILE_AT_ONCE: dict[str, Any] = {"seal_interval_ms": 10}
"""Settings with which a batch of a mebibyte becomes a `.kfs` of its own at once."""
NEVER_SEALED: dict[str, Any] = {"seal_interval_ms": 3_600_000, "seal_max_age_ms": 3_600_000}
"""Settings with which what is flushed stays in the journal, each flush by itself."""
_WORTHWHILE_VALUE_BYTES = 1_048_500
"""Of one record: its slice has a mebibyte, and its batch no more than `max.message.bytes`."""


def worthwhile_value(text: str) -> bytes:
    """A record's value that begins with the text and is a segment of its own with `WORTHWHILE_AT_ONCE`."""
    start = text.encode() + b" "
    return start + random.Random(text).randbytes(_WORTHWHILE_VALUE_BYTES - len(start))


def wait_until_sealed(broker: Any) -> None:
    """Wait until everything that the broker has flushed is in `.kfs` objects, and the records name these."""
    wait_until(lambda: scrape(broker).value("kafscale_seal_debt_slices") == 0, "everything is sealed")


async def store_record(parts: LogParts, partition: Partition) -> None:
    """Store the partition's record with all that is published."""
    await parts.logs.records.store(partition)


async def seal(parts: LogParts, partition: Partition) -> None:
    """Make segments of all slices of the partition; the record names them when it returns."""
    while unsealed(partition.record.segments):
        await parts.segment_life.sealer.seal_some(partition)
