"""Every setting of the broker: one row each, from which parsing, help and documentation derive."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

from kafscale.errors import SettingError
from kafscale.setting_kinds import (
    Address,
    Kind,
    address,
    advertised_host,
    advertised_port,
    boolean,
    bucket,
    choice,
    endpoints,
    file,
    folder,
    http_url,
    integer,
    key_segment,
    metadata_prefix,
    size,
    text,
)

T = TypeVar("T")

PREFIX = "KAFSCALE_"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
KIB = 2**10
MIB = 2**20


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
class SettingRow:
    """One row of the table. `default`: as it would stand in the environment, or words when it is derived."""

    variable: str
    field: str
    kind: Kind[Any]
    default: str
    documentation: str


def _setting(variable: str, kind: Kind[T], default: str, documentation: str) -> T:
    """A field of `Settings` that holds its row; its default is parsed like a value of the environment."""
    metadata = {"row": (variable, kind, default, documentation)}
    return dataclasses.field(default=kind.parse(default), metadata=metadata)


def _derived(variable: str, kind: Kind[T | None], default: str, documentation: str) -> T | None:
    """A field that is None unless set; `default` says in words what holds then."""
    metadata = {"row": (variable, kind, default, documentation)}
    return cast(T | None, dataclasses.field(default=None, metadata=metadata))


def _secret(variable: str, kind: Kind[T | None], default: str, documentation: str) -> T | None:
    """The same, for what must not appear in a log or a trace."""
    metadata = {"row": (variable, kind, default, documentation)}
    return cast(T | None, dataclasses.field(default=None, repr=False, metadata=metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the broker runs with. `load_settings` is the only way in from the environment."""

    broker_id: int = _setting(
        "KAFSCALE_BROKER_ID",
        integer(0, INT32_MAX),
        "0",
        "The broker's id in the cluster, as clients see it.",
    )
    broker_addr: Address = _setting(
        "KAFSCALE_BROKER_ADDR",
        address(),
        "127.0.0.1:9092",
        "Where the broker listens for Kafka clients.",
    )
    broker_host: str | None = _derived(
        "KAFSCALE_BROKER_HOST",
        advertised_host(),
        "the listen host; the machine's host name where that is a wildcard",
        "The host that clients are told to connect to.",
    )
    broker_port: int | None = _derived(
        "KAFSCALE_BROKER_PORT",
        advertised_port(),
        "the listen port",
        "The port that clients are told to connect to.",
    )
    metrics_addr: Address = _setting(
        "KAFSCALE_METRICS_ADDR",
        address(),
        "127.0.0.1:9093",
        "Where `/metrics`, `/healthz` and `/readyz` are served over HTTP.",
    )
    data_dir: Path = _setting(
        "KAFSCALE_DATA_DIR",
        folder(),
        "./kafscale-data",
        "The folder that holds the embedded object store and metadata store; one broker at a time uses it.",
    )
    rack: str | None = _derived(
        "KAFSCALE_RACK",
        text(249),
        "none",
        "The zone that the broker runs in; a consumer whose `client.rack` is the same reads from it.",
    )
    etcd_endpoints: tuple[str, ...] | None = _derived(
        "KAFSCALE_ETCD_ENDPOINTS",
        endpoints(),
        "none: the embedded metadata store, for one broker",
        "The etcd servers that hold the cluster's metadata; all of them with or all without TLS.",
    )
    etcd_prefix: str | None = _derived(
        "KAFSCALE_ETCD_PREFIX",
        metadata_prefix(),
        "/kafscale/ and the namespace",
        "What every key in etcd starts with; clusters that share an etcd have different ones.",
    )
    etcd_username: str | None = _derived(
        "KAFSCALE_ETCD_USERNAME", text(), "none", "The user to log in to etcd as."
    )
    etcd_password: str | None = _secret("KAFSCALE_ETCD_PASSWORD", text(), "none", "The user's password.")
    etcd_ca: Path | None = _derived(
        "KAFSCALE_ETCD_CA",
        file(),
        "the system's authorities",
        "The certificate authorities (PEM) that etcd's certificate is checked against.",
    )
    etcd_cert: Path | None = _derived(
        "KAFSCALE_ETCD_CERT", file(), "none", "The client certificate (PEM) that is shown to etcd."
    )
    etcd_key: Path | None = _derived(
        "KAFSCALE_ETCD_KEY", file(), "none", "The private key (PEM) of the client certificate."
    )
    lease_ttl_sec: int = _setting(
        "KAFSCALE_LEASE_TTL_SEC",
        integer(2, 3600),
        "10",
        "After this long without a sign of life a broker counts as gone, and others lead its partitions.",
    )
    s3_bucket: str | None = _derived(
        "KAFSCALE_S3_BUCKET",
        bucket(),
        "none: a folder in the data folder, for one broker",
        "The bucket that holds the records: a name for S3, or s3://, gs:// or az:// with a name.",
    )
    s3_region: str | None = _derived(
        "KAFSCALE_S3_REGION", text(64), "what the platform says, else us-east-1", "The bucket's region."
    )
    s3_endpoint: str | None = _derived(
        "KAFSCALE_S3_ENDPOINT",
        http_url(),
        "AWS's own for the region",
        "The URL of an S3-compatible server.",
    )
    s3_path_style: bool = _setting(
        "KAFSCALE_S3_PATH_STYLE",
        boolean(),
        "true",
        "Whether the bucket stands in the path of a URL rather than in its host name; matters with an endpoint.",
    )
    s3_access_key: str | None = _derived(
        "KAFSCALE_S3_ACCESS_KEY",
        text(),
        "the platform's credentials (environment, web identity, container, instance)",
        "The access key's id.",
    )
    s3_secret_key: str | None = _secret("KAFSCALE_S3_SECRET_KEY", text(), "none", "The access key's secret.")
    s3_session_token: str | None = _secret(
        "KAFSCALE_S3_SESSION_TOKEN", text(), "none", "The token of temporary credentials."
    )
    s3_kms_arn: str | None = _derived(
        "KAFSCALE_S3_KMS_ARN", text(), "none", "The KMS key that objects are encrypted with."
    )
    s3_concurrency: int = _setting(
        "KAFSCALE_S3_CONCURRENCY",
        integer(1, 4096),
        "64",
        "How many requests to the object store may be under way at the same time.",
    )
    local_fsync: bool = _setting(
        "KAFSCALE_LOCAL_FSYNC",
        boolean(),
        "true",
        "Whether the embedded stores wait for the disk before a record is acknowledged; with `false` a crash "
        "of the machine (not of the broker) can lose acknowledged records.",
    )
    s3_namespace: str = _setting(
        "KAFSCALE_S3_NAMESPACE",
        key_segment(),
        "default",
        "The first segment of every object key; clusters that share a store have different ones.",
    )
    segment_bytes: int = _setting(
        "KAFSCALE_SEGMENT_BYTES",
        size(
            MIB,
            INT32_MAX,
            " (larger ones need feature level 2 of kafscale.segment.format, which this version lacks)",
        ),
        "4MiB",
        "A partition's buffer is flushed as a segment once it holds this much.",
    )
    flush_interval_ms: int = _setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        integer(0, 3_600_000),
        "500",
        "A partition's buffer is flushed once its oldest record has waited this long; with 0 it is flushed "
        "at once, and while one flush runs the next gathers.",
    )
    flush_concurrency: int = _setting(
        "KAFSCALE_FLUSH_CONCURRENCY",
        integer(1, 1024),
        "32",
        "How many partitions are flushed at the same time.",
    )
    compression_codec: CompressionCodec = _setting(
        "KAFSCALE_COMPRESSION_CODEC",
        choice(CompressionCodec),
        "snappy",
        "How a batch is stored that its producer did not compress; `producer` stores every batch as it came.",
    )
    auto_create_topics: bool = _setting(
        "KAFSCALE_AUTO_CREATE_TOPICS",
        boolean(),
        "true",
        "Whether a topic is created when a client that allows it first names it.",
    )
    auto_create_partitions: int = _setting(
        "KAFSCALE_AUTO_CREATE_PARTITIONS",
        integer(1, 10_000),
        "1",
        "The partitions of a topic that is created without a number.",
    )
    max_message_bytes: int = _setting(
        "KAFSCALE_MAX_MESSAGE_BYTES",
        size(1, INT32_MAX),
        "1048588",
        "The largest record batch that is accepted; a topic's `max.message.bytes` goes before it.",
    )
    frame_max_bytes: int = _setting(
        "KAFSCALE_FRAME_MAX_BYTES",
        size(KIB, INT32_MAX),
        "100MiB",
        "The largest request that is accepted; the connection that sends a larger one is closed.",
    )
    fetch_max_bytes: int = _setting(
        "KAFSCALE_FETCH_MAX_BYTES",
        size(KIB, INT32_MAX),
        "55MiB",
        "The most that one fetch returns, whatever the client asks for; the first batch is returned whole.",
    )
    buffer_bytes: int = _setting(
        "KAFSCALE_BUFFER_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "The memory for records that wait to be flushed; while it is full, producers are not read from.",
    )
    cache_size_bytes: int = _setting(
        "KAFSCALE_CACHE_SIZE",
        size(0, INT64_MAX),
        "1GB",
        "The memory for segments that were read or written lately; 0 keeps none.",
    )
    read_ahead_segments: int = _setting(
        "KAFSCALE_READAHEAD_SEGMENTS",
        integer(0, 64),
        "2",
        "How many segments are read ahead of a consumer that reads from the object store; 0 reads none.",
    )
    max_connections: int = _setting(
        "KAFSCALE_MAX_CONNECTIONS",
        integer(1, 1_000_000),
        "10000",
        "How many Kafka clients may be connected; further connections are closed at once.",
    )
    connections_max_idle_ms: int = _setting(
        "KAFSCALE_CONNECTIONS_MAX_IDLE_MS",
        integer(1_000, INT64_MAX),
        "600000",
        "A connection is closed after this long without a request.",
    )
    group_initial_rebalance_delay_ms: int = _setting(
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS",
        integer(0, INT32_MAX),
        "3000",
        "How long an empty consumer group waits for further members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = _setting(
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "6000",
        "The shortest session timeout that a member of a group may ask for.",
    )
    group_max_session_timeout_ms: int = _setting(
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "1800000",
        "The longest session timeout that a member of a group may ask for.",
    )
    group_max_size: int = _setting(
        "KAFSCALE_GROUP_MAX_SIZE",
        integer(1, INT32_MAX),
        str(INT32_MAX),
        "The most members that a group may have.",
    )
    group_memory_bytes: int = _setting(
        "KAFSCALE_GROUP_MEMORY_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "The memory for the subscriptions and assignments of all groups; a member that would exceed it "
        "cannot join.",
    )
    offsets_retention_minutes: int = _setting(
        "KAFSCALE_OFFSETS_RETENTION_MINUTES",
        integer(1, INT32_MAX),
        "10080",
        "How long committed offsets are kept after their group became empty, or after the last commit of a "
        "consumer without a group.",
    )
    offsets_retention_check_interval_ms: int = _setting(
        "KAFSCALE_OFFSETS_RETENTION_CHECK_INTERVAL_MS",
        integer(1, INT64_MAX),
        "600000",
        "How often the broker looks for committed offsets that have expired.",
    )
    offsets_commit_timeout_ms: int = _setting(
        "KAFSCALE_OFFSETS_COMMIT_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "5000",
        "How long a commit, or a group's new generation, waits for the metadata store before its client gets "
        "an error that makes it try again.",
    )
    offset_metadata_max_bytes: int = _setting(
        "KAFSCALE_OFFSET_METADATA_MAX_BYTES",
        integer(0, 8191),
        "4096",
        "The longest text that a client may store with a committed offset, in characters (as in Kafka, "
        "whatever the name says).",
    )
    consumer_lag_max_series: int = _setting(
        "KAFSCALE_CONSUMER_LAG_MAX_SERIES",
        integer(0, 100_000),
        "1000",
        "How many partitions of groups have their consumer lag among the metrics; 0 switches it off.",
    )
    shutdown_timeout_ms: int = _setting(
        "KAFSCALE_SHUTDOWN_TIMEOUT_MS",
        integer(0, 3_600_000),
        "10000",
        "How long a stopping broker flushes and answers before it exits all the same.",
    )
    log_level: LogLevel = _setting(
        "KAFSCALE_LOG_LEVEL",
        choice(LogLevel),
        "info",
        "The least severe log line that is written.",
    )
    log_format: LogFormat = _setting(
        "KAFSCALE_LOG_FORMAT",
        choice(LogFormat),
        "text",
        "Whether log lines are text for people or JSON objects for programs.",
    )


def _row(field: "dataclasses.Field[Any]") -> SettingRow:
    variable, kind, default, documentation = field.metadata["row"]
    return SettingRow(
        variable=variable, field=field.name, kind=kind, default=default, documentation=documentation
    )


SETTINGS: tuple[SettingRow, ...] = tuple(_row(field) for field in dataclasses.fields(Settings))


def load_settings(environment: Mapping[str, str]) -> Settings:
    """The settings that the environment gives, with defaults for what it leaves out.

    Raises `SettingError`, with a message of one line, for the first value that is not legal.
    """
    values: dict[str, Any] = {
        row.field: _parse(row, environment[row.variable]) for row in SETTINGS if row.variable in environment
    }
    settings = Settings(**values)
    _check_together(settings)
    return settings


def _parse(row: SettingRow, text: str) -> Any:
    try:
        return row.kind.parse(text.strip())
    except ValueError:
        raise SettingError(f"{row.variable}={text!r} is not legal: it must be {row.kind.legal}") from None


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
    )
    for small, large, reason in at_most:
        low, high = getattr(settings, small), getattr(settings, large)
        if low > high:
            raise SettingError(
                f"{variable_of(small)}={low} is not legal: it must be at most {variable_of(large)}={high}, "
                f"because {reason}"
            )
    _check_cluster(settings)
    if settings.metrics_addr == settings.broker_addr and settings.metrics_addr.port != 0:
        raise SettingError(
            f"{variable_of('metrics_addr')}={settings.metrics_addr} is not legal: it must differ from "
            f"{variable_of('broker_addr')}={settings.broker_addr}"
        )


def _check_cluster(settings: Settings) -> None:
    needs = (
        ("etcd_endpoints", "s3_bucket", "the brokers of a cluster share one object store"),
        ("etcd_prefix", "etcd_endpoints", "it is a prefix of keys in etcd"),
        ("etcd_username", "etcd_password", "etcd asks for both"),
        ("etcd_password", "etcd_username", "etcd asks for both"),
        ("etcd_cert", "etcd_key", "a certificate is of no use without its key"),
        ("etcd_key", "etcd_cert", "a key is of no use without its certificate"),
        ("s3_access_key", "s3_secret_key", "one is of no use without the other"),
        ("s3_secret_key", "s3_access_key", "one is of no use without the other"),
        ("s3_session_token", "s3_access_key", "the token belongs to temporary credentials"),
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
    host = settings.broker_host or (host_name if listening.is_wildcard else listening.host)
    return Address(host, settings.broker_port or listening.port)
