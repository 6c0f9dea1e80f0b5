"""The name of the bucket whose lifecycle rules can be read and replaced."""

from kafscale.errors import SettingError
from kafscale.settings.broker import Settings


def s3_bucket_name(settings: Settings) -> str:
    """The bucket's name. Raises `SettingError` for settings whose store has no lifecycle rules of S3's kind."""
    if settings.s3_bucket is None:
        raise SettingError(
            "KAFSCALE_S3_BUCKET is not set, so the records are in a folder, which has no lifecycle rules: the "
            "brokers alone expire them, by retention.ms and retention.bytes"
        )
    scheme, _, name = settings.s3_bucket.rpartition("://")
    if scheme in ("gs", "az"):
        whose = "Google Cloud Storage" if scheme == "gs" else "Azure"
        raise SettingError(
            f"KAFSCALE_S3_BUCKET={settings.s3_bucket} is a bucket of {whose}, and these lifecycle rules are "
            "S3's: write such rules with the platform's own tools, or leave expiry to the brokers"
        )
    return name
