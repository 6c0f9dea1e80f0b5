"""The settings of the metadata store, the object store, and the broker's place among others at them."""

from dataclasses import dataclass
from pathlib import Path

from kafscale.settings.kinds import (
    boolean,
    bucket,
    endpoints,
    file,
    folder,
    fraction,
    http_url,
    integer,
    key_segment,
    metadata_prefix,
    optional_integer,
    text,
)
from kafscale.settings.rows import derived, secret, setting


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The stores that the broker keeps its data in; a part of `Settings`."""

    data_dir: Path = setting(
        "KAFSCALE_DATA_DIR",
        folder(),
        "./kafscale-data",
        "The folder of the embedded object store and metadata store; one broker at a time uses it.",
    )
    etcd_endpoints: tuple[str, ...] | None = derived(
        "KAFSCALE_ETCD_ENDPOINTS",
        endpoints(),
        "none: the embedded metadata store, for one broker",
        "The etcd servers with the cluster's metadata; all of them with or all without TLS.",
    )
    etcd_prefix: str | None = derived(
        "KAFSCALE_ETCD_PREFIX",
        metadata_prefix(),
        "/kafscale/ and the namespace",
        "What every key in etcd starts with; clusters that share an etcd have different ones.",
    )
    etcd_username: str | None = derived(
        "KAFSCALE_ETCD_USERNAME", text(), "none", "The user to log in to etcd as."
    )
    etcd_password: str | None = secret("KAFSCALE_ETCD_PASSWORD", text(), "none", "The user's password.")
    etcd_ca: Path | None = derived(
        "KAFSCALE_ETCD_CA",
        file(),
        "the system's authorities",
        "The certificate authorities (PEM) that etcd's certificate is checked against.",
    )
    etcd_cert: Path | None = derived(
        "KAFSCALE_ETCD_CERT", file(), "none", "The client certificate (PEM) that is shown to etcd."
    )
    etcd_key: Path | None = derived(
        "KAFSCALE_ETCD_KEY", file(), "none", "The private key (PEM) of the client certificate."
    )
    lease_ttl_sec: int = setting(
        "KAFSCALE_LEASE_TTL_SEC",
        integer(2, 3600),
        "10",
        "After this long without a sign of life a broker counts as gone, and others lead its partitions.",
    )
    s3_bucket: str | None = derived(
        "KAFSCALE_S3_BUCKET",
        bucket(),
        "none: a folder in the data folder, for one broker",
        "The bucket for the records: a name for S3, or s3://, gs:// or az:// with a name.",
    )
    s3_region: str | None = derived(
        "KAFSCALE_S3_REGION", text(64), "what the platform says, else us-east-1", "The bucket's region."
    )
    s3_endpoint: str | None = derived(
        "KAFSCALE_S3_ENDPOINT",
        http_url(),
        "AWS's own for the region",
        "The URL of an S3-compatible server.",
    )
    s3_path_style: bool = setting(
        "KAFSCALE_S3_PATH_STYLE",
        boolean(),
        "true",
        "Whether the bucket stands in the path of a URL rather than in its host name; matters with an endpoint.",
    )
    s3_access_key: str | None = derived(
        "KAFSCALE_S3_ACCESS_KEY",
        text(),
        "the platform's credentials (environment, web identity, container, instance)",
        "The access key's id.",
    )
    s3_secret_key: str | None = secret("KAFSCALE_S3_SECRET_KEY", text(), "none", "The access key's secret.")
    s3_session_token: str | None = secret(
        "KAFSCALE_S3_SESSION_TOKEN", text(), "none", "The token of temporary credentials."
    )
    s3_kms_arn: str | None = derived(
        "KAFSCALE_S3_KMS_ARN", text(), "none", "The KMS key that objects are encrypted with."
    )
    garbage_grace_sec: int = setting(
        "KAFSCALE_GARBAGE_GRACE_SEC",
        integer(60, 31_536_000),
        "3600",
        "How long an object that nothing refers to is kept, for readers that do not know that yet.",
    )
    garbage_check_interval_sec: int = setting(
        "KAFSCALE_GARBAGE_CHECK_INTERVAL_SEC",
        integer(1, 31_536_000),
        "21600",
        "How often the leader of a partition looks for such objects; a look lists the partition's objects.",
    )
    s3_concurrency: int = setting(
        "KAFSCALE_S3_CONCURRENCY",
        integer(1, 4096),
        "64",
        "How many requests to the object store may be in flight at the same time.",
    )
    s3_hedged_puts_percent: int | None = derived(
        "KAFSCALE_S3_HEDGED_PUTS_PERCENT",
        optional_integer(0, 100),
        "10, and 100 with KAFSCALE_FLUSH_INTERVAL_MS=0",
        "Of how many PUTs of small entries of the journal, those that take longest, a second request is sent beside "
        "the first; 0 for none, with 100 both are sent at once. It takes the edge off a bucket's slow answers, and "
        "costs as many requests more.",
    )
    local_fsync: bool = setting(
        "KAFSCALE_LOCAL_FSYNC",
        boolean(),
        "true",
        "Whether the embedded stores wait for the disk before a record is acknowledged; with `false` a crash "
        "of the machine (not of the broker) can lose acknowledged records.",
    )
    s3_namespace: str = setting(
        "KAFSCALE_S3_NAMESPACE",
        key_segment(),
        "default",
        "The first segment of every object key; clusters that share a store have different ones.",
    )
    s3_health_window_sec: int = setting(
        "KAFSCALE_S3_HEALTH_WINDOW_SEC",
        integer(5, 3600),
        "30",
        "How far back calls to the object store are looked at for its health.",
    )
    s3_latency_warn_ms: int = setting(
        "KAFSCALE_S3_LATENCY_WARN_MS",
        integer(1, 600_000),
        "1000",
        "A call to the object store that takes longer counts as slow: too many make the store DEGRADED.",
    )
    s3_latency_crit_ms: int = setting(
        "KAFSCALE_S3_LATENCY_CRIT_MS",
        integer(1, 600_000),
        "10000",
        "A call to the object store that takes longer counts as failed: too many make the store UNAVAILABLE.",
    )
    s3_error_rate_warn: float = setting(
        "KAFSCALE_S3_ERROR_RATE_WARN",
        fraction(),
        "0.1",
        "The share of calls to the object store, failed or slow, from which on it is DEGRADED.",
    )
    s3_error_rate_crit: float = setting(
        "KAFSCALE_S3_ERROR_RATE_CRIT",
        fraction(),
        "0.5",
        "The share of failed calls to the object store from which on it is UNAVAILABLE and produce is refused.",
    )
