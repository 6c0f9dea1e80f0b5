"""The settings of the bucket that snapshots of the metadata store go to."""

from dataclasses import dataclass

from kafscale.settings.kinds import bucket, http_url, key_prefix, text
from kafscale.settings.rows import derived, secret, setting


@dataclass(frozen=True, kw_only=True)
class BackupSettings:
    """Where backups are; a part of `Settings`. Brokers do not use it, `kafscale backup` and `recover` do."""

    backup_bucket: str | None = derived(
        "KAFSCALE_BACKUP_BUCKET",
        bucket(),
        "none: with a local folder for the records, the folder `backups` beside it",
        "The bucket for snapshots of the metadata store; better not the one with the records.",
    )
    backup_prefix: str = setting(
        "KAFSCALE_BACKUP_PREFIX",
        key_prefix(),
        "kafscale-backups",
        "The folder in that bucket; the namespace is a folder in it.",
    )
    backup_region: str | None = derived(
        "KAFSCALE_BACKUP_REGION", text(64), "KAFSCALE_S3_REGION", "The backup bucket's region."
    )
    backup_endpoint: str | None = derived(
        "KAFSCALE_BACKUP_ENDPOINT",
        http_url(),
        "KAFSCALE_S3_ENDPOINT",
        "The URL of the S3-compatible server that holds the backup bucket.",
    )
    backup_access_key: str | None = derived(
        "KAFSCALE_BACKUP_ACCESS_KEY",
        text(),
        "KAFSCALE_S3_ACCESS_KEY",
        "The id of the access key for the backup bucket.",
    )
    backup_secret_key: str | None = secret(
        "KAFSCALE_BACKUP_SECRET_KEY", text(), "KAFSCALE_S3_SECRET_KEY", "That access key's secret."
    )
    backup_kms_arn: str | None = derived(
        "KAFSCALE_BACKUP_KMS_ARN", text(), "none", "The KMS key that snapshots are encrypted with."
    )
