"""The limits of one etcd, one bucket prefix and such brokers: the tables of docs/scale.md. Pure.

`Figures` has the measured values; every table follows from them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.assignment import PARTITIONS_OF_A_PASS
from kafscale.cluster.rankings import RANKED
from kafscale.log.journal.progress import LEAST_INTERVAL_SEC
from kafscale.log.partition_log import CHECKPOINT_SEGMENTS
from kafscale.metadata.request_rules import MAX_OPERATIONS
from kafscale.ops.prices import Prices
from scripts import sizing

S3_PUTS_PER_SEC: Final = 3_500
"""PUT, POST, COPY and DELETE per second for each partition of a bucket's keys, at least: Amazon's guidelines."""

ETCD_FILE_BYTES: Final = 8 * 2**30
"""The largest database that etcd's documentation suggests."""

LEASE_TTL_SEC: Final = sizing.DEFAULTS.lease_ttl_sec
RENEWALS_PER_TTL: Final = 4
KEYS_PER_CLAIM: Final = 2
"""A partition's record and its leader key."""

EVENTS_PER_MOVE: Final = 2
"""The leader key is deleted, and created."""

BATCHES_PER_SEC: Final = 10.0
"""The record of a busy partition."""

HISTORY_SEC: Final = 120
BUSY_CORE: Final = 0.7
"""The share of a core that a broker should use permanently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """CPU times of one process, in the units of the names; docs/scale.md says how they were measured."""

    produce_cpu_sec_per_gb: float = 2.0
    fetch_cpu_sec_per_gb: float = 0.37
    entry_cpu_ms: float = 3.1
    slice_cpu_ms: float = 0.1
    metadata_cpu_us_per_partition: float = 1.6
    metadata_bytes_per_partition: float = 42.0
    preferred_cpu_us_per_partition_and_broker: float = 0.29
    preferred_cpu_us_per_ranked_partition: float = 2.6
    leader_load_cpu_us: float = 1.1
    event_cpu_us: float = 8.5
    memory_bytes_per_partition: float = 2_900
    etcd_transactions_per_sec: float = 3_877
    etcd_us_per_shared_record: float = 80
    etcd_cpu_us_per_key: float = 15.6
    etcd_cpu_us_per_key_and_watcher: float = 1.2
    etcd_cpu_us_per_keep_alive: float = 305


MEASURED: Final = Figures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A cluster's load. `busy`: how many of its partitions are written to, ten times a second each."""

    name: str
    gb_per_sec: float
    partitions: int
    busy: int
    brokers: int
    readers: int = 2
    flush_interval_ms: int = 500

    @property
    def requests(self) -> sizing.Load:
        """As the model of requests has it."""
        return sizing.Load(
            partitions=self.busy,
            batches_per_sec=BATCHES_PER_SEC,
            bytes_per_sec=self.gb_per_sec * 1e9 / self.busy,
            brokers=self.brokers,
            flush_interval_ms=self.flush_interval_ms,
        )

    @property
    def entries_per_sec(self) -> float:
        """Entries of all brokers, one PUT each."""
        return self.requests.entries_per_sec

    @property
    def slices_per_sec(self) -> float:
        """Slices of all partitions: one in each entry of its broker while it is written to more often."""
        return self.busy * min(BATCHES_PER_SEC, self.entries_per_sec / self.brokers)

    @property
    def puts_per_sec(self) -> float:
        """PUTs and LISTs per second, sealing and merging included."""
        return sizing.calls_in_a_day(self.requests).puts / sizing.SECONDS_PER_DAY

    @property
    def records_per_sec(self) -> float:
        """Records of partitions that are written: once for each look of the sealer."""
        return self.busy / sizing.look_sec(self.requests)

    @property
    def progress_per_sec(self) -> float:
        """Writes of journals' progress, one transaction each."""
        return self.brokers * min(1 / LEAST_INTERVAL_SEC, self.entries_per_sec / self.brokers)

    def etcd_share(self, figures: "Figures") -> float:
        """Of one etcd: transactions of progress, and records that share theirs."""
        shared = self.records_per_sec * figures.etcd_us_per_shared_record / 1e6
        return self.progress_per_sec / figures.etcd_transactions_per_sec + shared

    @property
    def dollars_a_month(self) -> float:
        """The price of all requests."""
        return sizing.calls_in_a_day(self.requests).dollars_a_month(Prices())

    def etcd_bytes(self) -> float:
        """Records of 64 segments, and two minutes of history twice."""
        record = sizing.record_bytes(CHECKPOINT_SEGMENTS // 2)
        return sizing.etcd_bytes(self.partitions, self.records_per_sec, HISTORY_SEC, record)


def byte_cores(load: Load, figures: Figures = MEASURED) -> float:
    """Cores of all brokers for bytes in, and for bytes out to each reader at the end of the log."""
    per_gb = figures.produce_cpu_sec_per_gb + load.readers * figures.fetch_cpu_sec_per_gb
    return load.gb_per_sec * per_gb


def flush_cores(load: Load, figures: Figures = MEASURED) -> float:
    """Cores of all brokers for entries and their slices."""
    cpu_ms = load.entries_per_sec * figures.entry_cpu_ms + load.slices_per_sec * figures.slice_cpu_ms
    return cpu_ms / 1000


def brokers_needed(load: Load, figures: Figures = MEASURED) -> int:
    """The number of brokers by CPU alone."""
    return math.ceil((byte_cores(load, figures) + flush_cores(load, figures)) / BUSY_CORE)


def preferred_sec(partitions: int, brokers: int, figures: Figures = MEASURED) -> float:
    """CPU of each broker when a new one joins: the computation of the preferred leaders."""
    if brokers <= RANKED:
        return partitions * brokers * figures.preferred_cpu_us_per_partition_and_broker / 1e6
    return partitions * figures.preferred_cpu_us_per_ranked_partition / 1e6


def held_up_sec(partitions: int, brokers: int, figures: Figures = MEASURED) -> float:
    """How long the event loop is blocked by it, with topics that are small beside a pass."""
    return preferred_sec(min(partitions, PARTITIONS_OF_A_PASS), brokers, figures)


def metadata_sec(partitions: int, figures: Figures = MEASURED) -> float:
    """CPU of one reply with every partition, built from scratch."""
    return partitions * figures.metadata_cpu_us_per_partition / 1e6


def move_etcd_sec(partitions: int, brokers: int, figures: Figures = MEASURED) -> float:
    """CPU of etcd to notify every broker that one broker's partitions have other leaders."""
    events = EVENTS_PER_MOVE * partitions / brokers
    return events * (figures.etcd_cpu_us_per_key + brokers * figures.etcd_cpu_us_per_key_and_watcher) / 1e6


def claim_transactions(partitions: int, brokers: int) -> int:
    """Transactions of each broker that takes over the partitions of one; a transaction compares their topic, too."""
    return math.ceil(partitions / brokers / ((MAX_OPERATIONS - 1) // KEYS_PER_CLAIM))


# --- the tables

ONE_GB: Final = Load(name="1 GB/s", gb_per_sec=1, partitions=1_000, busy=1_000, brokers=12)
HUNDRED_BROKERS: Final = Load(name="100 brokers", gb_per_sec=1, partitions=10_000, busy=10_000, brokers=100)
MANY_QUIET: Final = Load(
    name="100,000 partitions, 1,000 busy", gb_per_sec=1, partitions=100_000, busy=1_000, brokers=100
)
MANY_BUSY: Final = Load(
    name="100,000 partitions, all busy",
    gb_per_sec=1,
    partitions=100_000,
    busy=100_000,
    brokers=100,
)
LOADS: Final = (
    Load(name="", gb_per_sec=1, partitions=100, busy=100, brokers=5),
    ONE_GB,
    Load(name="", gb_per_sec=1, partitions=10_000, busy=10_000, brokers=12),
    HUNDRED_BROKERS,
    MANY_BUSY,
)
TARGETS: Final = (ONE_GB, HUNDRED_BROKERS, MANY_QUIET, MANY_BUSY)


def load_rows() -> Iterator[tuple[str, ...]]:
    """The cost of loads, by partitions and interval."""
    for load in LOADS:
        yield (
            f"{load.gb_per_sec:g}",
            f"{load.busy:,}",
            f"{load.flush_interval_ms:,}",
            f"{load.brokers}",
            f"{load.entries_per_sec:,.0f}",
            f"{load.puts_per_sec:,.0f}",
            f"{load.dollars_a_month:,.0f}",
            f"{byte_cores(load):.1f} + {flush_cores(load):,.1f}",
            f"{brokers_needed(load):,}",
            f"{load.etcd_share(MEASURED):,.2f}",
            f"{load.etcd_bytes() / 2**30:,.1f}",
        )


def target_rows() -> Iterator[tuple[str, ...]]:
    """The targets' use of each limit; the highest use comes first."""
    renew_sec = LEASE_TTL_SEC - LEASE_TTL_SEC / RENEWALS_PER_TTL
    rows = (
        ("one etcd's transactions", lambda load: load.etcd_share(MEASURED)),
        ("8 GiB of one etcd", lambda load: load.etcd_bytes() / ETCD_FILE_BYTES),
        ("3,500 PUTs a second of one S3 partition", lambda load: load.puts_per_sec / S3_PUTS_PER_SEC),
        ("the brokers' CPU, at 0.7 of a core each", lambda load: brokers_needed(load) / load.brokers),
        (
            f"the {renew_sec:.1f} s that a lease is sure to last, when a broker starts or stops",
            lambda load: held_up_sec(load.partitions, load.brokers) / renew_sec,
        ),
    )
    for name, share in rows:
        yield (name, *(_percent(share(load)) for load in TARGETS))


def _percent(share: float) -> str:
    text = f"{share * 100:,.0f} %" if share >= 0.01 else "below 1 %"
    return f"**{text}**" if round(share, 3) > 1 else text


def broker_rows() -> Iterator[tuple[str, ...]]:
    """The cost when a broker starts or stops."""
    for brokers, partitions in ((3, 1_000), (10, 10_000), (30, 10_000), (100, 10_000), (100, 100_000)):
        events = EVENTS_PER_MOVE * partitions / brokers
        keep_alives = brokers * RENEWALS_PER_TTL / LEASE_TTL_SEC
        yield (
            f"{brokers}",
            f"{partitions:,}",
            f"{preferred_sec(partitions, brokers):,.3f}",
            f"{held_up_sec(partitions, brokers):,.3f}",
            f"{claim_transactions(partitions, brokers):,}",
            f"{events * brokers:,.0f}",
            f"{move_etcd_sec(partitions, brokers):,.2f}",
            f"{events * MEASURED.event_cpu_us / 1e6:,.3f}",
            f"{2 * brokers * preferred_sec(partitions, brokers):,.0f}",
            f"{keep_alives:,.0f}; {keep_alives * MEASURED.etcd_cpu_us_per_keep_alive / 1e6:.1%}",
        )


def partition_rows() -> Iterator[tuple[str, ...]]:
    """The cost of partitions without writes."""
    idle = sizing.record_bytes(0)
    for partitions in (1_000, 10_000, 100_000):
        yield (
            f"{partitions:,}",
            f"{partitions * MEASURED.metadata_bytes_per_partition / 1e6:,.2f}",
            f"{metadata_sec(partitions) * 1000:,.0f}",
            f"{partitions * MEASURED.leader_load_cpu_us / 1e6:,.2f}",
            f"{partitions * MEASURED.memory_bytes_per_partition / 1e6:,.0f}",
            f"{partitions * idle / 1e6:,.1f}",
        )
