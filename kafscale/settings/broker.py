"""Every setting of the broker: one row each, from which parsing, help and documentation derive."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafscale.errors import SettingError
from kafscale.masking import shown_value
from kafscale.settings.backup import BackupSettings
from kafscale.settings.kinds import (
    Address,
    address,
    advertised_host,
    advertised_port,
    boolean,
    choice,
    integer,
    optional_address,
    optional_integer,
    size,
    text,
)
from kafscale.settings.rows import (
    INT32_MAX,
    INT64_MAX,
    KIB,
    MIB,
    derived,
    row_of,
    setting,
)
from kafscale.settings.rows import SettingRow as SettingRow

PREFIX = "KAFSCALE_"


class CompressionCodec(StrEnum):
    """What becomes of a batch that its producer did not compress; `producer` leaves every batch as it is."""

    SNAPPY = "snappy"
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    PRODUCER = "producer"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The form of a log line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(BackupSettings):
    """What the broker runs with. `load_settings` is the only way in from the environment.

    `named`: the fields that the environment names, be it with their default.
    """

    named: frozenset[str] = dataclasses.field(default=frozenset(), repr=False, compare=False)
    broker_id: int = setting(
        "KAFSCALE_BROKER_ID",
        integer(0, INT32_MAX),
        "0",
        "The broker's id in the cluster, as clients see it.",
    )
    broker_addr: Address = setting(
        "KAFSCALE_BROKER_ADDR",
        address(),
        "127.0.0.1:9092",
        "Where the broker listens for Kafka clients.",
    )
    broker_host: str | None = derived(
        "KAFSCALE_BROKER_HOST",
        advertised_host(),
        "the listen host; the machine's host name where that is a wildcard",
        "The host that clients are told to connect to.",
    )
    broker_port: int | None = derived(
        "KAFSCALE_BROKER_PORT",
        advertised_port(),
        "the listen port",
        "The port that clients are told to connect to.",
    )
    external_addr: Address | None = derived(
        "KAFSCALE_EXTERNAL_ADDR",
        optional_address(),
        "none",
        "A second address to listen on, for clients that reach the brokers by other names than those within "
        "the network: they are told the external host and port of every broker (Kafka's listeners).",
    )
    external_host: str | None = derived(
        "KAFSCALE_EXTERNAL_HOST",
        advertised_host(),
        "the external listen host; the machine's host name where that is a wildcard",
        "The host that clients of the external address are told to connect to.",
    )
    external_port: int | None = derived(
        "KAFSCALE_EXTERNAL_PORT",
        advertised_port(),
        "the external listen port",
        "The port that clients of the external address are told to connect to.",
    )
    metrics_addr: Address = setting(
        "KAFSCALE_METRICS_ADDR",
        address(),
        "127.0.0.1:9093",
        "Where `/metrics`, `/healthz` and `/readyz` are served over HTTP.",
    )
    rack: str | None = derived(
        "KAFSCALE_RACK",
        text(249),
        "none",
        "The zone that the broker runs in; a consumer whose `client.rack` is the same reads from it.",
    )
    segment_bytes: int = setting(
        "KAFSCALE_SEGMENT_BYTES",
        size(
            MIB,
            INT64_MAX,
            f"; above {INT32_MAX} only with feature level 2 of kafscale.segment.format",
        ),
        "4MiB",
        "A partition's buffer is flushed as a segment once it holds this much, at the latest at 64 MiB; a topic's "
        "`segment.bytes` goes before it.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        integer(0, 3_600_000),
        "500",
        "A partition's buffer is flushed once its oldest record has waited this long, often earlier where records "
        "lie in a folder (KAFSCALE_EARLY_FLUSHES); with 0 it is flushed at once, and while two flushes are under "
        "way the next gathers.",
    )
    early_flushes: int | None = derived(
        "KAFSCALE_EARLY_FLUSHES",
        optional_integer(0, 1024),
        "2 in a folder, 0 on a bucket",
        "While fewer flushes than this are under way, a buffer is flushed before its time, as soon as its producers "
        "pause; 0 lets every buffer wait for KAFSCALE_FLUSH_INTERVAL_MS.",
    )
    flush_concurrency: int = setting(
        "KAFSCALE_FLUSH_CONCURRENCY",
        integer(1, 1024),
        "32",
        "How many flushes may be under way at the same time, at most two of a partition.",
    )
    compression_codec: CompressionCodec = setting(
        "KAFSCALE_COMPRESSION_CODEC",
        choice(CompressionCodec),
        "snappy",
        "How a batch is stored that its producer did not compress; `producer` stores every batch as it came. A batch "
        "that does not get a sixteenth smaller is stored as it came, and so is what follows it in its partition, "
        "untried, up to fifteen times its bytes.",
    )
    auto_create_topics: bool = setting(
        "KAFSCALE_AUTO_CREATE_TOPICS",
        boolean(),
        "true",
        "Whether a topic is created when a client that allows it first names it.",
    )
    auto_create_partitions: int = setting(
        "KAFSCALE_AUTO_CREATE_PARTITIONS",
        integer(1, 10_000),
        "1",
        "The partitions of a topic that is created without a number.",
    )
    max_message_bytes: int = setting(
        "KAFSCALE_MAX_MESSAGE_BYTES",
        size(1, INT32_MAX),
        "1048588",
        "The largest record batch that is accepted; a topic's `max.message.bytes` goes before it.",
    )
    frame_max_bytes: int = setting(
        "KAFSCALE_FRAME_MAX_BYTES",
        size(KIB, INT32_MAX),
        "100MiB",
        "The largest request that is accepted; the connection that sends a larger one is closed.",
    )
    fetch_max_bytes: int = setting(
        "KAFSCALE_FETCH_MAX_BYTES",
        size(KIB, INT32_MAX),
        "55MiB",
        "The most that one fetch returns, whatever the client asks for; the first batch is returned whole.",
    )
    buffer_bytes: int = setting(
        "KAFSCALE_BUFFER_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "The memory for records that wait to be flushed; while it is full, producers are not read from.",
    )
    max_connections: int = setting(
        "KAFSCALE_MAX_CONNECTIONS",
        integer(1, 1_000_000),
        "10000",
        "How many Kafka clients may be connected; further connections are closed at once.",
    )
    connections_max_idle_ms: int = setting(
        "KAFSCALE_CONNECTIONS_MAX_IDLE_MS",
        integer(1_000, INT64_MAX),
        "600000",
        "A connection is closed after this long without a request.",
    )
    slow_request_ms: int = setting(
        "KAFSCALE_SLOW_REQUEST_MS",
        integer(0, INT32_MAX),
        "5000",
        "A Fetch or Produce that takes longer is logged with its stages; the wait for fetch.min.bytes, and for the "
        "client to take the reply, do not count. 0 for none.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS",
        integer(0, INT32_MAX),
        "3000",
        "How long an empty consumer group waits for further members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "6000",
        "The shortest session timeout that a member of a group may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "1800000",
        "The longest session timeout that a member of a group may ask for.",
    )
    group_max_size: int = setting(
        "KAFSCALE_GROUP_MAX_SIZE",
        integer(1, INT32_MAX),
        str(INT32_MAX),
        "The most members that a group may have.",
    )
    group_memory_bytes: int = setting(
        "KAFSCALE_GROUP_MEMORY_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "The memory for the subscriptions and assignments of all groups; a member that would exceed it "
        "cannot join.",
    )
    group_offsets_max_bytes: int = setting(
        "KAFSCALE_GROUP_OFFSETS_MAX_BYTES",
        size(KIB, INT64_MAX),
        "8MiB",
        "What the committed offsets of one group may take in the metadata store; a commit past it is refused.",
    )
    groups_stored_max_bytes: int = setting(
        "KAFSCALE_GROUPS_STORED_MAX_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "What all groups of the cluster may take in the metadata store; past three quarters of it no group and "
        "no offset is added.",
    )
    offsets_retention_minutes: int = setting(
        "KAFSCALE_OFFSETS_RETENTION_MINUTES",
        integer(1, INT32_MAX),
        "10080",
        "How long committed offsets are kept after their group became empty, or after the last commit of a "
        "consumer without a group.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "KAFSCALE_OFFSETS_RETENTION_CHECK_INTERVAL_MS",
        integer(1, INT64_MAX),
        "600000",
        "How often the broker looks for committed offsets that have expired.",
    )
    offsets_commit_timeout_ms: int = setting(
        "KAFSCALE_OFFSETS_COMMIT_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "5000",
        "How long a commit, or a group's new generation, waits for the metadata store before its client gets "
        "an error that makes it try again.",
    )
    offset_metadata_max_bytes: int = setting(
        "KAFSCALE_OFFSET_METADATA_MAX_BYTES",
        integer(0, 8191),
        "4096",
        "The longest text that a client may store with a committed offset, in characters (as in Kafka, "
        "whatever the name says).",
    )
    consumer_lag_max_series: int = setting(
        "KAFSCALE_CONSUMER_LAG_MAX_SERIES",
        integer(0, 100_000),
        "1000",
        "How many partitions of groups have their consumer lag among the metrics; 0 switches it off.",
    )
    shutdown_timeout_ms: int = setting(
        "KAFSCALE_SHUTDOWN_TIMEOUT_MS",
        integer(0, 3_600_000),
        "10000",
        "How long a stopping broker flushes and answers before it exits all the same.",
    )
    shutdown_linger_ms: int = setting(
        "KAFSCALE_SHUTDOWN_LINGER_MS",
        integer(0, 3_600_000),
        "3000",
        "How long a broker that has handed everything over goes on to tell its clients so: some take the end of "
        "their connection for an error. It ends with the last connection.",
    )
    log_level: LogLevel = setting(
        "KAFSCALE_LOG_LEVEL",
        choice(LogLevel),
        "info",
        "The least severe log line that is written. Commands other than `serve` and `pod` leave out `info` lines.",
    )
    log_format: LogFormat = setting(
        "KAFSCALE_LOG_FORMAT",
        choice(LogFormat),
        "text",
        "Whether log lines are text for people or JSON objects for programs.",
    )


def _rows() -> tuple[SettingRow, ...]:
    """The broker's own rows, then those of its stores."""
    of_stores = {field.name for field in dataclasses.fields(BackupSettings)}
    fields = sorted(dataclasses.fields(Settings), key=lambda field: field.name in of_stores)
    return tuple(row_of(field) for field in fields if field.name != "named")


SETTINGS: tuple[SettingRow, ...] = _rows()


def load_settings(environment: Mapping[str, str]) -> Settings:
    """The settings that the environment gives, with defaults for what it leaves out.

    Raises `SettingError`, with a message of one line, for the first value that is not legal.
    """
    values: dict[str, Any] = {
        row.field: _parse(row, environment[row.variable]) for row in SETTINGS if row.variable in environment
    }
    settings = Settings(named=frozenset(values), **values)
    _check_together(settings)
    return settings


def _parse(row: SettingRow, text: str) -> Any:
    try:
        return row.kind.parse(text.strip())
    except ValueError:
        shown = "" if row.is_secret else f"={shown_value(text)}"
        raise SettingError(f"{row.variable}{shown} is not legal: it must be {row.kind.legal}") from None


def _check_together(settings: Settings) -> None:
    """Refuse values that are legal alone but not together."""
    at_most = (
        ("max_message_bytes", "frame_max_bytes", "a batch arrives in one request"),
        ("segment_bytes", "buffer_bytes", "a segment is gathered in the buffers"),
        ("max_message_bytes", "buffer_bytes", "a batch waits in the buffers"),
        (
            "group_min_session_timeout_ms",
            "group_max_session_timeout_ms",
            "a member's session timeout lies between them",
        ),
        (
            "group_offsets_max_bytes",
            "groups_stored_max_bytes",
            "one group's offsets are part of what all groups store",
        ),
        ("s3_latency_warn_ms", "s3_latency_crit_ms", "what is slow enough to fail is slow"),
        ("s3_error_rate_warn", "s3_error_rate_crit", "what is unavailable is degraded"),
    )
    for small, large, reason in at_most:
        low, high = getattr(settings, small), getattr(settings, large)
        if low > high:
            raise SettingError(
                f"{variable_of(small)}={low} is not legal: it must be at most {variable_of(large)}={high}, "
                f"because {reason}"
            )
    _check_cluster(settings)
    listening: dict[Address, str] = {}
    for field in ("broker_addr", "external_addr", "metrics_addr"):
        where: Address | None = getattr(settings, field)
        if where is None or where.port == 0:
            continue
        other = listening.setdefault(where, field)
        if other != field:
            raise SettingError(
                f"{variable_of(field)}={where} is not legal: it must differ from {variable_of(other)}={where}"
            )


def _check_cluster(settings: Settings) -> None:
    needs = (
        ("etcd_endpoints", "s3_bucket", "the brokers of a cluster share one object store"),
        ("external_host", "external_addr", "it is what clients of that address are told"),
        ("external_port", "external_addr", "it is what clients of that address are told"),
        ("etcd_prefix", "etcd_endpoints", "it is a prefix of keys in etcd"),
        ("etcd_username", "etcd_password", "etcd asks for both"),
        ("etcd_password", "etcd_username", "etcd asks for both"),
        ("etcd_cert", "etcd_key", "a certificate is of no use without its key"),
        ("etcd_key", "etcd_cert", "a key is of no use without its certificate"),
        ("s3_access_key", "s3_secret_key", "one is of no use without the other"),
        ("s3_secret_key", "s3_access_key", "one is of no use without the other"),
        ("s3_session_token", "s3_access_key", "the token belongs to temporary credentials"),
        ("s3_read_bucket", "s3_bucket", "it is a replica of that bucket"),
        ("s3_read_region", "s3_read_bucket", "it is the replica's"),
        ("s3_read_endpoint", "s3_read_bucket", "it is the replica's"),
        ("backup_region", "backup_bucket", "it is the backup bucket's"),
        ("backup_endpoint", "backup_bucket", "it is the backup bucket's"),
        ("backup_access_key", "backup_secret_key", "one is of no use without the other"),
        ("backup_secret_key", "backup_access_key", "one is of no use without the other"),
        ("backup_access_key", "backup_bucket", "it is the backup bucket's"),
        ("backup_kms_arn", "backup_bucket", "it is the backup bucket's"),
    )
    for field, needed, reason in needs:
        if getattr(settings, field) is not None and getattr(settings, needed) is None:
            raise SettingError(f"{variable_of(field)} needs {variable_of(needed)} to be set: {reason}")


def variable_of(field: str) -> str:
    """The environment variable of a field of `Settings`."""
    return next(row.variable for row in SETTINGS if row.field == field)


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """One line for each `KAFSCALE_` variable that is no setting, with the nearest names."""
    known = [row.variable for row in SETTINGS]
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    return [f"{name} is not a setting and has no effect{_near(name, known)}" for name in unknown]


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.8)
    return f"; did you mean {' or '.join(near)}?" if near else "; `kafscale serve --help` lists the settings"


def advertised_address(settings: Settings, listening: Address, host_name: str) -> Address:
    """The address that clients are given, for a broker that listens at `listening` (its port as bound).

    `host_name`: the machine's, used when the listen host is a wildcard and no host is set.
    """
    return _advertised(settings.broker_host, settings.broker_port, listening, host_name)


def external_address(settings: Settings, listening: Address, host_name: str) -> Address:
    """The same for clients of the external address."""
    return _advertised(settings.external_host, settings.external_port, listening, host_name)


def _advertised(host: str | None, port: int | None, listening: Address, host_name: str) -> Address:
    return Address(host or (host_name if listening.is_wildcard else listening.host), port or listening.port)
