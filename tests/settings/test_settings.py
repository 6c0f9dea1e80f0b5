"""Settings: from an environment to values, and one clear line for everything that is not legal."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import SettingError
from kafscale.masking import shown_value
from kafscale.settings.broker import (
    SETTINGS,
    AuthorizerKind,
    CompressionCodec,
    LogFormat,
    LogLevel,
    SettingRow,
    Settings,
    load_settings,
    unknown_settings,
    variable_of,
)
from kafscale.settings.groups import ConsumerAssignor, MigrationPolicy
from kafscale.settings.journal import JournalBucketUse, SingleZone
from kafscale.settings.kinds import Address, size_text
from kafscale.settings.listener_list import listener_specs
from tests.settings.listener_values import LISTENER_LEGAL, LISTENER_NEEDED
from tests.settings.sasl_values import SASL_LEGAL


def test_nothing_set_gives_the_documented_defaults() -> None:
    settings = load_settings({})
    assert settings == Settings()
    assert settings.broker_addr == Address("127.0.0.1", 9092)
    assert settings.metrics_addr == Address("127.0.0.1", 9093)
    assert settings.data_dir == Path("kafscale-data")
    assert settings.segment_bytes == 4 * 2**20
    assert settings.flush_interval_ms == 500
    assert settings.compression_codec is CompressionCodec.SNAPPY
    assert settings.max_message_bytes == 1048588
    assert settings.frame_max_bytes == 104857600
    assert settings.fetch_max_bytes == 57671680
    assert settings.cache_size_bytes == 10**9
    assert settings.local_fsync is True
    assert (settings.broker_host, settings.broker_port) == (None, None)


# One legal text for each setting, with its value, different from the default.
LEGAL: dict[str, tuple[str, object]] = {
    "KAFSCALE_BROKER_ID": ("2147483647", 2147483647),
    "KAFSCALE_BROKER_ADDR": ("[::1]:19092", Address("::1", 19092)),
    "KAFSCALE_BROKER_HOST": ("kafka.example.com", "kafka.example.com"),
    "KAFSCALE_BROKER_PORT": ("1", 1),
    "KAFSCALE_EXTERNAL_ADDR": (":9094", Address("0.0.0.0", 9094)),
    "KAFSCALE_EXTERNAL_HOST": ("kafka-0.example.com", "kafka-0.example.com"),
    "KAFSCALE_EXTERNAL_PORT": ("19092", 19092),
    "KAFSCALE_METRICS_ADDR": (":0", Address("0.0.0.0", 0)),
    "KAFSCALE_METRICS_TOKEN_FILE": ("/run/token", Path("/run/token")),
    "KAFSCALE_ADMIN_PAGE": ("false", False),
    "KAFSCALE_AUTHORIZER": ("acl", AuthorizerKind.ACL),
    "KAFSCALE_SUPER_USERS": ("User:admin; User:CN=ops,O=x:y;", {"User:admin", "User:CN=ops,O=x:y"}),
    "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": ("true", True),
    "KAFSCALE_DATA_DIR": ("/var/lib/kafscale", Path("/var/lib/kafscale")),
    "KAFSCALE_RACK": ("eu-west-1a", "eu-west-1a"),
    "KAFSCALE_ETCD_ENDPOINTS": (
        "etcd-1:2379, https://[::1]:2379/",
        ("http://etcd-1:2379", "https://[::1]:2379"),
    ),
    "KAFSCALE_ETCD_PREFIX": ("/teams/a", "/teams/a"),
    "KAFSCALE_ETCD_USERNAME": ("broker", "broker"),
    "KAFSCALE_ETCD_PASSWORD": ("pass word", "pass word"),
    "KAFSCALE_ETCD_CA": ("/etc/ssl/ca.pem", Path("/etc/ssl/ca.pem")),
    "KAFSCALE_ETCD_CERT": ("tls.crt", Path("tls.crt")),
    "KAFSCALE_ETCD_KEY": ("tls.key", Path("tls.key")),
    "KAFSCALE_LEASE_TTL_SEC": ("2", 2),
    "KAFSCALE_S3_BUCKET": ("s3://records/", "s3://records"),
    "KAFSCALE_S3_REGION": ("eu-west-1", "eu-west-1"),
    "KAFSCALE_S3_ENDPOINT": ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
    "KAFSCALE_S3_PATH_STYLE": ("false", False),
    "KAFSCALE_S3_ACCESS_KEY": ("AKIA", "AKIA"),
    "KAFSCALE_S3_SECRET_KEY": ("a/secret+key=", "a/secret+key="),
    "KAFSCALE_S3_SESSION_TOKEN": ("token", "token"),
    "KAFSCALE_S3_KMS_ARN": ("arn:aws:kms:eu-west-1:1:key/k", "arn:aws:kms:eu-west-1:1:key/k"),
    "KAFSCALE_GARBAGE_GRACE_SEC": ("60", 60),
    "KAFSCALE_GARBAGE_CHECK_INTERVAL_SEC": ("3600", 3600),
    "KAFSCALE_S3_CONCURRENCY": ("1", 1),
    "KAFSCALE_S3_HEDGED_PUTS_PERCENT": ("0", 0),
    "KAFSCALE_S3_HEALTH_WINDOW_SEC": ("60", 60),
    "KAFSCALE_S3_LATENCY_WARN_MS": ("500", 500),
    "KAFSCALE_S3_LATENCY_CRIT_MS": ("3000", 3000),
    "KAFSCALE_S3_ERROR_RATE_WARN": (".05", 0.05),
    "KAFSCALE_S3_ERROR_RATE_CRIT": ("1", 1.0),
    "KAFSCALE_LOCAL_FSYNC": ("False", False),
    "KAFSCALE_S3_NAMESPACE": ("prod.eu-1", "prod.eu-1"),
    "KAFSCALE_SEGMENT_BYTES": ("8MiB", 8 * 2**20),
    "KAFSCALE_FLUSH_INTERVAL_MS": ("0", 0),
    "KAFSCALE_FLUSH_BYTES": ("1MiB", 2**20),
    "KAFSCALE_FLUSHES_PER_SEC": ("0", 0),
    "KAFSCALE_FLUSHES_IN_FLIGHT": ("1", 1),
    "KAFSCALE_SEAL_INTERVAL_MS": ("250", 250),
    "KAFSCALE_SEAL_MAX_AGE_MS": ("60000", 60_000),
    "KAFSCALE_MERGE_CONCURRENCY": ("5", 5),
    "KAFSCALE_CODEC_CLIENTS": ("my-client, x.1,*", ("my-client", "x.1", "*")),
    "KAFSCALE_COMPRESSION_CODEC": ("ZSTD", CompressionCodec.ZSTD),
    "KAFSCALE_AUTO_CREATE_TOPICS": ("false", False),
    "KAFSCALE_AUTO_CREATE_PARTITIONS": ("12", 12),
    "KAFSCALE_MAX_MESSAGE_BYTES": ("2000000", 2000000),
    "KAFSCALE_FRAME_MAX_BYTES": ("64 MB", 64 * 10**6),
    "KAFSCALE_FETCH_MAX_BYTES": ("10mib", 10 * 2**20),
    "KAFSCALE_BUFFER_BYTES": ("1GiB", 2**30),
    "KAFSCALE_READAHEAD_SEGMENTS": ("0", 0),
    "KAFSCALE_CACHE_SIZE": ("0", 0),
    "KAFSCALE_INDEX_CACHE_SIZE": ("64MB", 64 * 10**6),
    "KAFSCALE_MERGE_TARGET_BYTES": ("1GiB", 2**30),
    "KAFSCALE_MERGE_MIN_SEGMENTS": ("2", 2),
    "KAFSCALE_MERGE_CHECK_INTERVAL_MS": ("100", 100),
    "KAFSCALE_MERGE_BYTES_PER_SEC": ("0", 0),
    "KAFSCALE_COMPACTION_MEMORY": ("1MiB", 1024 * 1024),
    "KAFSCALE_COMPACTION_BYTES_PER_SEC": ("0", 0),
    "KAFSCALE_RETENTION_MS": ("-1", -1),
    "KAFSCALE_RETENTION_BYTES": ("1073741824", 2**30),
    "KAFSCALE_RETENTION_CHECK_INTERVAL_MS": ("1", 1),
    "KAFSCALE_S3_READ_BUCKET": ("s3://replica-eu/", "s3://replica-eu"),
    "KAFSCALE_S3_READ_REGION": ("eu-central-1", "eu-central-1"),
    "KAFSCALE_S3_READ_ENDPOINT": ("http://127.0.0.1:9001", "http://127.0.0.1:9001"),
    "KAFSCALE_JOURNAL_BUCKET": ("s3://journals/", "s3://journals"),
    "KAFSCALE_JOURNAL_REGION": ("eu-central-1", "eu-central-1"),
    "KAFSCALE_JOURNAL_ENDPOINT": ("http://127.0.0.1:9003", "http://127.0.0.1:9003"),
    "KAFSCALE_JOURNAL_BUCKET_USE": ("read", JournalBucketUse.READ),
    "KAFSCALE_JOURNAL_SINGLE_ZONE": ("Accept", SingleZone.ACCEPT),
    "KAFSCALE_JOURNAL_PRICE_PER_1000_PUTS": ("0.00113", 0.00113),
    "KAFSCALE_JOURNAL_PRICE_PER_1000_GETS": ("0", 0.0),
    "KAFSCALE_JOURNAL_PRICE_PER_GB_WRITTEN": ("0.0032", 0.0032),
    "KAFSCALE_JOURNAL_PRICE_PER_GB_READ": ("0.0006", 0.0006),
    "KAFSCALE_BACKUP_BUCKET": ("backups", "backups"),
    "KAFSCALE_BACKUP_PREFIX": ("prod/kafscale", "prod/kafscale"),
    "KAFSCALE_BACKUP_REGION": ("eu-central-1", "eu-central-1"),
    "KAFSCALE_BACKUP_ENDPOINT": ("http://127.0.0.1:9002", "http://127.0.0.1:9002"),
    "KAFSCALE_BACKUP_ACCESS_KEY": ("backup-key", "backup-key"),
    "KAFSCALE_BACKUP_SECRET_KEY": ("backup-secret", "backup-secret"),
    "KAFSCALE_BACKUP_KMS_ARN": ("arn:aws:kms:backup", "arn:aws:kms:backup"),
    "KAFSCALE_PRICE_PER_1000_PUTS": ("0.0045", 0.0045),
    "KAFSCALE_PRICE_PER_1000_GETS": ("3e-05", 0.00003),
    "KAFSCALE_PRICE_PER_GB_WRITTEN": ("1e+06", 1e6),
    "KAFSCALE_PRICE_PER_GB_READ": ("0.09", 0.09),
    "KAFSCALE_PRICE_PER_GB_MONTH": ("0", 0.0),
    "KAFSCALE_COST_BUDGET_PER_MONTH": ("250", 250.0),
    "KAFSCALE_MAX_CONNECTIONS": ("5", 5),
    "KAFSCALE_CONNECTIONS_MAX_IDLE_MS": ("1000", 1000),
    "KAFSCALE_SLOW_REQUEST_MS": ("250", 250),
    "KAFSCALE_QUOTA_WINDOW_NUM": ("3", 3),
    "KAFSCALE_QUOTA_WINDOW_SIZE_SECONDS": ("5", 5),
    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": ("0", 0),
    "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS": ("1", 1),
    "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS": ("300000", 300_000),
    "KAFSCALE_GROUP_MAX_SIZE": ("200", 200),
    "KAFSCALE_GROUP_SHARE_SESSION_TIMEOUT_MS": ("50000", 50_000),
    "KAFSCALE_GROUP_SHARE_MIN_SESSION_TIMEOUT_MS": ("1", 1),
    "KAFSCALE_GROUP_SHARE_MAX_SESSION_TIMEOUT_MS": ("300000", 300_000),
    "KAFSCALE_GROUP_SHARE_HEARTBEAT_INTERVAL_MS": ("6000", 6000),
    "KAFSCALE_GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS": ("1", 1),
    "KAFSCALE_GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS": ("5000", 5000),
    "KAFSCALE_GROUP_SHARE_MAX_SIZE": ("1000", 1000),
    "KAFSCALE_GROUP_SHARE_RECORD_LOCK_DURATION_MS": ("40000", 40_000),
    "KAFSCALE_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS": ("1000", 1000),
    "KAFSCALE_GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS": ("3600000", 3_600_000),
    "KAFSCALE_GROUP_SHARE_DELIVERY_COUNT_LIMIT": ("10", 10),
    "KAFSCALE_GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS": ("100", 100),
    "KAFSCALE_GROUP_SHARE_MAX_SHARE_SESSIONS": ("1000", 1000),
    "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": ("50000", 50_000),
    "KAFSCALE_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS": ("1", 1),
    "KAFSCALE_GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS": ("300000", 300_000),
    "KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": ("6000", 6000),
    "KAFSCALE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": ("1", 1),
    "KAFSCALE_GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS": ("5000", 5000),
    "KAFSCALE_GROUP_CONSUMER_MAX_SIZE": ("200", 200),
    "KAFSCALE_GROUP_CONSUMER_ASSIGNORS": (
        "range, Uniform,range",
        (ConsumerAssignor.RANGE, ConsumerAssignor.UNIFORM),
    ),
    "KAFSCALE_GROUP_CONSUMER_MIGRATION_POLICY": ("Upgrade", MigrationPolicy.UPGRADE),
    "KAFSCALE_GROUP_MEMORY_BYTES": ("1GiB", 2**30),
    "KAFSCALE_GROUP_OFFSETS_MAX_BYTES": ("1MiB", 2**20),
    "KAFSCALE_GROUPS_STORED_MAX_BYTES": ("1GiB", 2**30),
    "KAFSCALE_OFFSETS_RETENTION_MINUTES": ("1440", 1440),
    "KAFSCALE_OFFSETS_RETENTION_CHECK_INTERVAL_MS": ("1000", 1000),
    "KAFSCALE_TRANSACTION_MAX_TIMEOUT_MS": ("60000", 60_000),
    "KAFSCALE_TRANSACTIONAL_ID_EXPIRATION_MS": ("3600000", 3_600_000),
    "KAFSCALE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": ("1000", 1000),
    "KAFSCALE_TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS": ("1000", 1000),
    "KAFSCALE_TRANSACTIONAL_IDS_MAX": ("64", 64),
    "KAFSCALE_OFFSETS_COMMIT_TIMEOUT_MS": ("10000", 10_000),
    "KAFSCALE_OFFSET_METADATA_MAX_BYTES": ("0", 0),
    "KAFSCALE_CONSUMER_LAG_MAX_SERIES": ("0", 0),
    "KAFSCALE_SHUTDOWN_TIMEOUT_MS": ("0", 0),
    "KAFSCALE_SHUTDOWN_LINGER_MS": ("500", 500),
    "KAFSCALE_LOG_LEVEL": ("debug", LogLevel.DEBUG),
    "KAFSCALE_LOG_FORMAT": ("json", LogFormat.JSON),
    **LISTENER_LEGAL,
    **SASL_LEGAL,
}


# What else has to be set for a setting to be of use.
NEEDED: dict[str, list[str]] = {
    "KAFSCALE_ETCD_ENDPOINTS": ["KAFSCALE_S3_BUCKET"],
    "KAFSCALE_EXTERNAL_HOST": ["KAFSCALE_EXTERNAL_ADDR"],
    **LISTENER_NEEDED,
    "KAFSCALE_EXTERNAL_PORT": ["KAFSCALE_EXTERNAL_ADDR"],
    "KAFSCALE_ETCD_PREFIX": ["KAFSCALE_ETCD_ENDPOINTS", "KAFSCALE_S3_BUCKET"],
    "KAFSCALE_ETCD_USERNAME": ["KAFSCALE_ETCD_PASSWORD"],
    "KAFSCALE_ETCD_PASSWORD": ["KAFSCALE_ETCD_USERNAME"],
    "KAFSCALE_ETCD_CERT": ["KAFSCALE_ETCD_KEY"],
    "KAFSCALE_ETCD_KEY": ["KAFSCALE_ETCD_CERT"],
    "KAFSCALE_S3_ACCESS_KEY": ["KAFSCALE_S3_SECRET_KEY"],
    "KAFSCALE_S3_SECRET_KEY": ["KAFSCALE_S3_ACCESS_KEY"],
    "KAFSCALE_S3_SESSION_TOKEN": ["KAFSCALE_S3_ACCESS_KEY", "KAFSCALE_S3_SECRET_KEY"],
    "KAFSCALE_S3_READ_BUCKET": ["KAFSCALE_S3_BUCKET"],
    "KAFSCALE_S3_READ_REGION": ["KAFSCALE_S3_READ_BUCKET", "KAFSCALE_S3_BUCKET"],
    "KAFSCALE_S3_READ_ENDPOINT": ["KAFSCALE_S3_READ_BUCKET", "KAFSCALE_S3_BUCKET"],
    "KAFSCALE_JOURNAL_BUCKET": ["KAFSCALE_S3_BUCKET"],
    **{
        f"KAFSCALE_JOURNAL_{rest}": ["KAFSCALE_JOURNAL_BUCKET", "KAFSCALE_S3_BUCKET"]
        for rest in (
            "REGION",
            "ENDPOINT",
            "PRICE_PER_1000_PUTS",
            "PRICE_PER_1000_GETS",
            "PRICE_PER_GB_WRITTEN",
            "PRICE_PER_GB_READ",
        )
    },
    "KAFSCALE_BACKUP_REGION": ["KAFSCALE_BACKUP_BUCKET"],
    "KAFSCALE_BACKUP_ENDPOINT": ["KAFSCALE_BACKUP_BUCKET"],
    "KAFSCALE_BACKUP_ACCESS_KEY": ["KAFSCALE_BACKUP_SECRET_KEY", "KAFSCALE_BACKUP_BUCKET"],
    "KAFSCALE_BACKUP_SECRET_KEY": ["KAFSCALE_BACKUP_ACCESS_KEY", "KAFSCALE_BACKUP_BUCKET"],
    "KAFSCALE_BACKUP_KMS_ARN": ["KAFSCALE_BACKUP_BUCKET"],
}


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.variable)
def test_each_setting_reaches_its_field(row: SettingRow) -> None:
    field = row.field
    needed = {variable: LEGAL[variable][0] for variable in NEEDED.get(row.variable, [])}
    text, value = LEGAL[row.variable]
    settings = load_settings({**needed, row.variable: text})
    assert getattr(settings, field) == value
    others = {other.field: getattr(Settings(), other.field) for other in SETTINGS if other.variable in needed}
    assert dataclasses.replace(settings, **others, **{field: getattr(Settings(), field)}) == Settings()


ILLEGAL = [
    ("KAFSCALE_BROKER_ID", ["", "-1", "2147483648", "1.5", "one", "0x10", "٣", "9" * 5000]),
    ("KAFSCALE_RETENTION_MS", ["-2", "", "7d", "--1"]),
    ("KAFSCALE_MERGE_MIN_SEGMENTS", ["1", "1001"]),
    ("KAFSCALE_MERGE_TARGET_BYTES", ["1048575", "-1", "9223372036854775808"]),
    ("KAFSCALE_S3_READ_BUCKET", ["", "a"]),
    ("KAFSCALE_JOURNAL_BUCKET", ["", "a"]),
    ("KAFSCALE_JOURNAL_BUCKET_USE", ["", "both"]),
    ("KAFSCALE_JOURNAL_SINGLE_ZONE", ["", "true"]),
    ("KAFSCALE_JOURNAL_PRICE_PER_1000_PUTS", ["-1", "free"]),
    ("KAFSCALE_BACKUP_BUCKET", ["", "a"]),
    ("KAFSCALE_BACKUP_PREFIX", ["", "/a", "a/", "a//b", "a/../b", "_kafscale", "a/_b", "ü", "a" * 250]),
    ("KAFSCALE_BROKER_ADDR", ["", "9092", "localhost", "localhost:", "localhost:65536", "::1:9092", "[::1]"]),
    ("KAFSCALE_BROKER_ADDR", ["[nonsense]:1", "a b:1", "http://a:1", "host:-1", "a..b:1"]),
    ("KAFSCALE_BROKER_HOST", ["", "0.0.0.0", "::", "[::]", "a:1", "a/b", "x" * 300]),
    ("KAFSCALE_BROKER_PORT", ["0", "65536", "http"]),
    ("KAFSCALE_EXTERNAL_ADDR", ["", "9094", "host", "::1:9094"]),
    ("KAFSCALE_EXTERNAL_HOST", ["", "0.0.0.0", "a:1"]),
    ("KAFSCALE_EXTERNAL_PORT", ["0", "65536"]),
    ("KAFSCALE_METRICS_ADDR", ["nowhere"]),
    ("KAFSCALE_AUTHORIZER", ["", "ACLs", "true"]),
    ("KAFSCALE_SUPER_USERS", ["admin", "User:admin;ops", "User:", ":admin"]),
    ("KAFSCALE_DATA_DIR", ["", "a\0b"]),
    ("KAFSCALE_LOCAL_FSYNC", ["", "yes", "1", "off"]),
    ("KAFSCALE_S3_NAMESPACE", ["", ".", "..", "a/b", "_kafscale", "ü", "a" * 250, "a\nb"]),
    ("KAFSCALE_SEGMENT_BYTES", ["1048575", "9223372036854775808", "4MB/s", "MiB", "-1", "1.5MiB", "4 M i B"]),
    ("KAFSCALE_FLUSH_INTERVAL_MS", ["-1", "500ms", "3600001"]),
    ("KAFSCALE_FLUSHES_PER_SEC", ["-1", "two", "1000001"]),
    ("KAFSCALE_SEAL_INTERVAL_MS", ["9", "3600001"]),
    ("KAFSCALE_SEAL_MAX_AGE_MS", ["999"]),
    ("KAFSCALE_MERGE_CONCURRENCY", ["0", "some", "257"]),
    ("KAFSCALE_CODEC_CLIENTS", ["a,,b", "two words", "-a", "a*", "ü"]),
    ("KAFSCALE_FLUSHES_IN_FLIGHT", ["0", "65"]),
    ("KAFSCALE_FLUSH_BYTES", ["65535", "65MiB"]),
    ("KAFSCALE_COMPRESSION_CODEC", ["", "gzip", "uncompressed"]),
    ("KAFSCALE_AUTO_CREATE_PARTITIONS", ["0"]),
    ("KAFSCALE_MAX_MESSAGE_BYTES", ["0", "4GiB"]),
    ("KAFSCALE_BUFFER_BYTES", ["0", "9999999999GB"]),
    ("KAFSCALE_MAX_CONNECTIONS", ["0"]),
    ("KAFSCALE_RACK", ["", "a\nb", "r" * 250]),
    ("KAFSCALE_ETCD_ENDPOINTS", ["", "etcd", "etcd:", "etcd:0", "etcd:65536", "ftp://etcd:2379", "a:1,,b:1"]),
    ("KAFSCALE_ETCD_ENDPOINTS", ["http://etcd:2379/v3", "::1:2379", "user@etcd:2379"]),
    ("KAFSCALE_ETCD_PREFIX", ["", "/", "kafscale", "/kafscale/", "/a b", "/" + "p" * 250]),
    ("KAFSCALE_ETCD_USERNAME", ["", "a\tb"]),
    ("KAFSCALE_ETCD_CA", ["", "a\0b"]),
    ("KAFSCALE_LEASE_TTL_SEC", ["1", "3601", "10s"]),
    ("KAFSCALE_S3_BUCKET", ["", "ab", "Records", "s3:/records", "http://records", "s3://records/folder"]),
    ("KAFSCALE_S3_ENDPOINT", ["", "127.0.0.1:9000", "ftp://a", "http://", "http://a:0", "http://a/bucket"]),
    ("KAFSCALE_S3_PATH_STYLE", ["path"]),
    ("KAFSCALE_S3_CONCURRENCY", ["0", "4097"]),
    ("KAFSCALE_S3_HEDGED_PUTS_PERCENT", ["-1", "101", "2.5", "10%"]),
    ("KAFSCALE_S3_HEALTH_WINDOW_SEC", ["4", "3601"]),
    ("KAFSCALE_S3_LATENCY_WARN_MS", ["0", "600001", "1s"]),
    (
        "KAFSCALE_S3_ERROR_RATE_WARN",
        ["", "0", "0.0", "1.1", "5%", "-0.1", ".", "nan", "inf", "1e-3", "0.1.2"],
    ),
    ("KAFSCALE_S3_ERROR_RATE_CRIT", ["0", "2"]),
    ("KAFSCALE_PRICE_PER_1000_PUTS", ["", "-1", "$1", "0,5", "nan", "inf", "1000001", "1e9"]),
    ("KAFSCALE_GROUP_CONSUMER_ASSIGNORS", ["", "range,", "sticky"]),
    ("KAFSCALE_GROUP_SHARE_MAX_SIZE", ["0", "1001"]),
    ("KAFSCALE_GROUP_SHARE_RECORD_LOCK_DURATION_MS", ["999", "3600001"]),
    ("KAFSCALE_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS", ["999", "30001"]),
    ("KAFSCALE_GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS", ["29999", "3600001"]),
    ("KAFSCALE_GROUP_SHARE_DELIVERY_COUNT_LIMIT", ["1", "11"]),
    ("KAFSCALE_GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS", ["99", "10001"]),
    ("KAFSCALE_GROUP_SHARE_MAX_SHARE_SESSIONS", ["0"]),
    ("KAFSCALE_GROUP_CONSUMER_MIGRATION_POLICY", ["", "both"]),
    ("KAFSCALE_LOG_LEVEL", ["verbose"]),
    ("KAFSCALE_LOG_FORMAT", ["xml"]),
]


@pytest.mark.parametrize(
    ("variable", "text"), [(variable, text) for variable, texts in ILLEGAL for text in texts]
)
def test_illegal_value_is_refused_with_setting_value_and_rule(variable: str, text: str) -> None:
    row = next(row for row in SETTINGS if row.variable == variable)
    with pytest.raises(SettingError) as refused:
        load_settings({variable: text})
    message = str(refused.value)
    assert message == f"{variable}={shown_value(text)} is not legal: it must be {row.kind.legal}"
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**63 - 1])
def test_sizes_of_segments_are_64_bit(size: int) -> None:
    """The cluster's permission is checked once it is known (`check_segment_settings`)."""
    environment = {
        name: str(size)
        for name in ("KAFSCALE_SEGMENT_BYTES", "KAFSCALE_BUFFER_BYTES", "KAFSCALE_MERGE_TARGET_BYTES")
    }
    settings = load_settings(environment)
    assert (settings.segment_bytes, settings.merge_target_bytes) == (size, size)


@pytest.mark.parametrize("variable", ["KAFSCALE_SEGMENT_BYTES", "KAFSCALE_MERGE_TARGET_BYTES"])
def test_what_larger_segments_need_is_said(variable: str) -> None:
    row = next(row for row in SETTINGS if row.variable == variable)
    assert "above 2147483647 only with feature level 2 of kafscale.segment.format" in row.kind.legal


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        (
            {"KAFSCALE_MAX_MESSAGE_BYTES": "200MiB", "KAFSCALE_BUFFER_BYTES": "1GiB"},
            "KAFSCALE_FRAME_MAX_BYTES",
        ),
        ({"KAFSCALE_SEGMENT_BYTES": "512MiB"}, "KAFSCALE_BUFFER_BYTES"),
        ({"KAFSCALE_MAX_MESSAGE_BYTES": "8MiB", "KAFSCALE_BUFFER_BYTES": "4MiB"}, "KAFSCALE_BUFFER_BYTES"),
        (
            {"KAFSCALE_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS": "45001"},
            "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS",
        ),
        (
            {"KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "15001"},
            "KAFSCALE_GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS",
        ),
        (
            {
                "KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "5000",
                "KAFSCALE_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS": "1",
                "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "5000",
            },
            "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS",
        ),
        (
            {
                "KAFSCALE_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS": "29999",
                "KAFSCALE_GROUP_SHARE_RECORD_LOCK_DURATION_MS": "20000",
            },
            "KAFSCALE_GROUP_SHARE_RECORD_LOCK_DURATION_MS",
        ),
        (
            {"KAFSCALE_GROUP_SHARE_RECORD_LOCK_DURATION_MS": "60001"},
            "KAFSCALE_GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS",
        ),
        ({"KAFSCALE_OFFSETS_COMMIT_TIMEOUT_MS": "45001"}, "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS"),
        (
            {
                "KAFSCALE_OFFSETS_COMMIT_TIMEOUT_MS": "45001",
                "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "46000",
            },
            "KAFSCALE_GROUP_SHARE_SESSION_TIMEOUT_MS",
        ),
        (
            {"KAFSCALE_GROUP_SHARE_MAX_SIZE": "300", "KAFSCALE_GROUP_SHARE_MAX_SHARE_SESSIONS": "299"},
            "KAFSCALE_GROUP_SHARE_MAX_SHARE_SESSIONS",
        ),
        (
            {"KAFSCALE_GROUP_SHARE_SESSION_TIMEOUT_MS": "60001"},
            "KAFSCALE_GROUP_SHARE_MAX_SESSION_TIMEOUT_MS",
        ),
        (
            {
                "KAFSCALE_GROUP_SHARE_HEARTBEAT_INTERVAL_MS": "6000",
                "KAFSCALE_GROUP_SHARE_MIN_SESSION_TIMEOUT_MS": "1",
                "KAFSCALE_GROUP_SHARE_SESSION_TIMEOUT_MS": "6000",
            },
            "KAFSCALE_GROUP_SHARE_SESSION_TIMEOUT_MS",
        ),
        ({"KAFSCALE_METRICS_ADDR": "127.0.0.1:9092"}, "KAFSCALE_BROKER_ADDR"),
        ({"KAFSCALE_EXTERNAL_ADDR": "127.0.0.1:9092"}, "KAFSCALE_BROKER_ADDR"),
        ({"KAFSCALE_S3_LATENCY_WARN_MS": "10001"}, "KAFSCALE_S3_LATENCY_CRIT_MS"),
        ({"KAFSCALE_S3_ERROR_RATE_WARN": "0.6"}, "KAFSCALE_S3_ERROR_RATE_CRIT"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(environment: dict[str, str], names: str) -> None:
    with pytest.raises(SettingError) as refused:
        load_settings(environment)
    message = str(refused.value)
    assert message.startswith(next(iter(environment)))
    assert names in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "missing"),
    [(variable, missing) for variable, needed in NEEDED.items() for missing in needed],
)
def test_a_setting_that_is_of_no_use_without_another_is_refused(variable: str, missing: str) -> None:
    environment = {name: LEGAL[name][0] for name in (variable, *NEEDED[variable]) if name != missing}
    with pytest.raises(SettingError, match=rf"^KAFSCALE_\w+ needs {missing} to be set: .+$"):
        load_settings(environment)


SECRETS = (
    "KAFSCALE_ETCD_PASSWORD",
    "KAFSCALE_S3_SECRET_KEY",
    "KAFSCALE_S3_SESSION_TOKEN",
    "KAFSCALE_BACKUP_SECRET_KEY",
    "KAFSCALE_SSL_KEY_PASSWORD",
)


def test_secrets_are_known_as_such() -> None:
    assert {row.variable for row in SETTINGS if row.is_secret} == set(SECRETS)


@pytest.mark.parametrize("variable", SECRETS)
def test_a_secret_is_in_no_text_about_the_settings(variable: str) -> None:
    canary = "canary-4711"
    needed = {name: LEGAL[name][0] for name in NEEDED[variable]}
    settings = load_settings({**needed, variable: canary})
    assert canary in dataclasses.astuple(settings)
    assert canary not in repr(settings)
    assert canary not in str(settings)
    with pytest.raises(SettingError) as refused:
        load_settings({**needed, variable: f"{canary}\t{canary}"})
    assert canary not in str(refused.value)
    assert str(refused.value).startswith(f"{variable} is not legal: it must be ")
    with pytest.raises(SettingError) as refused:
        load_settings({variable: canary})
    assert canary not in str(refused.value)


def test_two_free_ports_are_no_conflict() -> None:
    load_settings({"KAFSCALE_BROKER_ADDR": "127.0.0.1:0", "KAFSCALE_METRICS_ADDR": "127.0.0.1:0"})


def test_space_around_a_value_is_ignored() -> None:
    assert load_settings({"KAFSCALE_BROKER_ID": " 7\n"}).broker_id == 7


@given(st.integers(1, 2**31 - 1))
def test_sizes_are_written_as_they_are_read(size_bytes: int) -> None:
    settings = load_settings({"KAFSCALE_CACHE_SIZE": size_text(size_bytes)})
    assert settings.cache_size_bytes == size_bytes


@given(st.sampled_from([row.variable for row in SETTINGS]), st.text(max_size=40))
def test_no_text_does_anything_but_load_or_be_refused(variable: str, text: str) -> None:
    try:
        settings = load_settings({variable: text})
    except SettingError as refused:
        assert variable in str(refused)
        assert len(str(refused).splitlines()) == 1
    else:
        assert isinstance(settings, Settings)


def test_a_misspelt_setting_is_refused_with_the_nearest_names() -> None:
    lines = unknown_settings(
        {"KAFSCALE_SEGMENTS_BYTES": "1", "KAFSCALE_XYZZY": "1", "HOME": "/", "KAFSCALE_BROKER_ID": "1"}
    )
    assert len(lines) == 2
    assert lines[0].startswith("KAFSCALE_SEGMENTS_BYTES is not a setting")
    assert "did you mean KAFSCALE_SEGMENT_BYTES" in lines[0]
    assert lines[1].startswith("KAFSCALE_XYZZY is not a setting")
    assert "did you mean" not in lines[1]


@pytest.mark.parametrize(
    ("environment", "listening", "advertised"),
    [
        ({}, Address("127.0.0.1", 9092), Address("127.0.0.1", 9092)),
        ({}, Address("0.0.0.0", 41), Address("the-machine", 41)),
        ({}, Address("::", 41), Address("the-machine", 41)),
        ({"KAFSCALE_BROKER_HOST": "outside"}, Address("0.0.0.0", 41), Address("outside", 41)),
        ({"KAFSCALE_BROKER_PORT": "9"}, Address("::1", 41), Address("::1", 9)),
        ({"KAFSCALE_BROKER_HOST": "[::1]"}, Address("127.0.0.1", 41), Address("::1", 41)),
    ],
)
def test_clients_are_given_an_address_they_can_reach(
    environment: dict[str, str], listening: Address, advertised: Address
) -> None:
    (spec,) = listener_specs(load_settings(environment))
    assert spec.advertised(listening, "the-machine") == advertised


def test_every_setting_is_named_in_the_table_once_and_documented() -> None:
    assert (
        len({row.variable for row in SETTINGS}) == len(SETTINGS) == len(dataclasses.fields(Settings)) - 1
    )  # `named`
    assert LEGAL.keys() == {row.variable for row in SETTINGS}
    assert all(row.variable.startswith("KAFSCALE_") and row.documentation.endswith(".") for row in SETTINGS)
    assert variable_of("data_dir") == "KAFSCALE_DATA_DIR"
