"""From settings to a bucket: whose it is, where it is, and with which credentials."""

import ipaddress
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from kafscale.errors import SettingError
from kafscale.objects.bucket.multipart import PART_BYTES
from kafscale.objects.bucket.multipart_client import MultipartClient
from kafscale.objects.bucket.requests import DEFAULT_PATIENCE, Patience
from kafscale.objects.bucket.store import MULTIPART_ABOVE_BYTES, BucketStore
from kafscale.objects.request_meter import RequestLog
from kafscale.settings.broker import Settings
from kafscale.settings.journal import is_directory_bucket

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential, S3CredentialProvider

# The library tries nothing again: after a lost reply it could meet its own object and call it taken, and it
# does not know our deadlines. `bucket_requests` tries again.
_RETRIES: "RetryConfig" = {"max_retries": 0}
# Nothing is tried again at the replica: the primary is asked instead.
_REPLICA_PATIENCE = Patience(first_pause_sec=math.inf, last_pause_sec=math.inf)
_BACKUP_HINT = (
    " (this is the bucket of the backups: KAFSCALE_BACKUP_BUCKET, and its _REGION, _ENDPOINT, _ACCESS_KEY and "
    "_SECRET_KEY where it has its own)"
)
_JOURNAL_HINT = (
    " (this is the bucket of the journals: KAFSCALE_JOURNAL_BUCKET, and its _REGION and _ENDPOINT)"
)
# What a bucket that is not S3's takes from its own environment variables.
_OF_S3_ONLY = ("s3_region", "s3_endpoint", "s3_access_key", "s3_secret_key", "s3_session_token", "s3_kms_arn")


def open_bucket(
    settings: Settings,
    patience: Patience = DEFAULT_PATIENCE,
    *,
    multipart_above_bytes: int = MULTIPART_ABOVE_BYTES,
    part_bytes: int = PART_BYTES,
    refusal_hint: str = "",
    meter: RequestLog | None = None,
) -> BucketStore:
    """The store of `KAFSCALE_S3_BUCKET`. Makes no request: `bucket_probe` finds out whether it works.

    The sizes, the hint and the meter are `BucketStore`'s. Raises `SettingError`.
    """
    if settings.s3_bucket is None:
        raise SettingError("KAFSCALE_S3_BUCKET is not set; it names the bucket that holds the records")
    scheme, _, name = settings.s3_bucket.rpartition("://")
    is_directory = is_directory_bucket(settings.s3_bucket)
    try:
        if scheme in ("", "s3"):
            return BucketStore(
                _s3(settings, name),
                concurrency=settings.s3_concurrency,
                multipart=None if is_directory else MultipartClient(settings, name, meter),
                multipart_above_bytes=multipart_above_bytes,
                part_bytes=part_bytes,
                patience=patience,
                refusal_hint=refusal_hint,
                meter=meter,
                lists_in_order=not is_directory,
            )
        _check_not_of_s3(settings)
        of_others = GCSStore if scheme == "gs" else AzureStore
        bucket = of_others(name, client_options=_client(None), retry_config=_RETRIES)
        return BucketStore(
            bucket,
            concurrency=settings.s3_concurrency,
            deletes_in_bulk=False,
            patience=patience,
            refusal_hint=refusal_hint,
            meter=meter,
        )
    except (BaseError, ValueError) as problem:
        said = str(problem).partition("\n")[0]
        raise SettingError(f"KAFSCALE_S3_BUCKET={settings.s3_bucket} cannot be used: {said}") from problem


def open_replica(settings: Settings, meter: RequestLog | None = None) -> BucketStore:
    """The store of `KAFSCALE_S3_READ_BUCKET`, only to be read from. Raises `SettingError`."""
    if settings.s3_read_bucket is None:
        raise SettingError("KAFSCALE_S3_READ_BUCKET is not set; it names the replica of the bucket")
    replica = replace(
        settings,
        s3_bucket=settings.s3_read_bucket,
        s3_region=settings.s3_read_region or settings.s3_region,
        s3_endpoint=settings.s3_read_endpoint or settings.s3_endpoint,
    )
    try:
        return open_bucket(replica, _REPLICA_PATIENCE, meter=meter)
    except SettingError as problem:
        # It speaks of the settings of the bucket itself, which these stand in for.
        raise SettingError(
            f"KAFSCALE_S3_READ_BUCKET={settings.s3_read_bucket} cannot be used: {problem}"
        ) from problem


def open_journal_bucket(settings: Settings, meter: RequestLog | None = None) -> BucketStore:
    """The store of `KAFSCALE_JOURNAL_BUCKET`. Raises `SettingError`."""
    if settings.journal_bucket is None:
        raise SettingError("KAFSCALE_JOURNAL_BUCKET is not set; it names the bucket that holds journals")
    records = _without_s3(settings, settings.journal_bucket)
    endpoint, kms_arn = records.s3_endpoint, records.s3_kms_arn
    if is_directory_bucket(settings.journal_bucket):
        # It encrypts with the key that it is created with, and no request can name one. Amazon's has endpoints of its
        # own, by zone.
        kms_arn = None
        endpoint = None if _is_amazons(endpoint) else endpoint
    journals = replace(
        records,
        s3_bucket=settings.journal_bucket,
        s3_region=settings.journal_region or records.s3_region,
        s3_endpoint=settings.journal_endpoint or endpoint,
        s3_kms_arn=kms_arn,
    )
    try:
        return open_bucket(journals, refusal_hint=_JOURNAL_HINT, meter=meter)
    except SettingError as problem:
        # It speaks of the settings of the records' bucket, which these stand in for.
        raise SettingError(
            f"KAFSCALE_JOURNAL_BUCKET={settings.journal_bucket} cannot be used: {problem}"
        ) from problem


def open_backup_bucket(settings: Settings) -> BucketStore:
    """The store of `KAFSCALE_BACKUP_BUCKET`. Raises `SettingError`."""
    if settings.backup_bucket is None:
        raise SettingError("KAFSCALE_BACKUP_BUCKET is not set; it names the bucket that holds the backups")
    records = _without_s3(settings, settings.backup_bucket)
    has_own_key = settings.backup_access_key is not None
    backups = replace(
        records,
        s3_bucket=settings.backup_bucket,
        s3_region=settings.backup_region or records.s3_region,
        s3_endpoint=settings.backup_endpoint or records.s3_endpoint,
        s3_access_key=settings.backup_access_key or records.s3_access_key,
        s3_secret_key=settings.backup_secret_key or records.s3_secret_key,
        s3_session_token=None if has_own_key else records.s3_session_token,
        s3_kms_arn=settings.backup_kms_arn,
    )
    try:
        return open_bucket(backups, refusal_hint=_BACKUP_HINT)
    except SettingError as problem:
        # It speaks of the settings of the records' bucket, which these stand in for.
        raise SettingError(
            f"KAFSCALE_BACKUP_BUCKET={settings.backup_bucket} cannot be used: {problem}"
        ) from problem


def _without_s3(settings: Settings, bucket: str) -> Settings:
    """The settings for another bucket: one that is not S3's has nothing of what is said of the records' S3."""
    if not bucket.startswith(("gs://", "az://")):
        return settings
    nothing: dict[str, Any] = dict.fromkeys(_OF_S3_ONLY)
    return replace(settings, **nothing)


def _is_amazons(endpoint: str | None) -> bool:
    return (urlsplit(endpoint or "").hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def s3_config(settings: Settings, bucket: str) -> "S3Config":
    """The library's own configuration; what is not in it comes from the platform's environment variables."""
    config: S3Config = {
        "bucket": bucket,
        "virtual_hosted_style_request": not settings.s3_path_style,
        "conditional_put": "etag",
        # The body is not part of the signature, its CRC is: a quarter of the CPU, and damage is still found.
        "unsigned_payload": True,
        "checksum_algorithm": "CRC64NVME",
    }
    if settings.s3_region is not None:
        config["region"] = settings.s3_region
    if settings.s3_endpoint is not None:
        config["endpoint"] = _endpoint(settings.s3_endpoint, bucket, path_style=settings.s3_path_style)
    elif is_directory_bucket(bucket):
        # Amazon's own: requests are signed with a session's credentials, which the library renews, and go to the
        # zone that the name shows.
        config["s3_express"] = True
    if settings.s3_kms_arn is not None:
        config["server_side_encryption"] = "aws:kms"
        config["sse_kms_key_id"] = settings.s3_kms_arn
    return config


def credentials(settings: Settings) -> "S3CredentialProvider | None":
    """Those of the settings; None for the platform's: environment, web identity, container, instance."""
    if settings.s3_access_key is None or settings.s3_secret_key is None:
        return None
    # A provider rather than configuration, which the library would mix with a token of the environment.
    credential: S3Credential = {
        "access_key_id": settings.s3_access_key,
        "secret_access_key": settings.s3_secret_key,
        "token": settings.s3_session_token,
        "expires_at": None,
    }
    return lambda: credential


def _s3(settings: Settings, bucket: str) -> S3Store:
    _check_ascii(settings)
    return S3Store(
        config=s3_config(settings, bucket),
        client_options=_client(settings.s3_endpoint),
        retry_config=_RETRIES,
        credential_provider=credentials(settings),
    )


def _client(endpoint: str | None) -> "ClientConfig":
    options: ClientConfig = {
        # Our own limits end a request. The library's knows nothing of its size and must not come before them.
        "timeout": "2h",
        "connect_timeout": "5s",
        # Servers close what is idle, S3 after about 20 s; a request that meets that has an unknown outcome.
        "pool_idle_timeout": "15s",
    }
    if endpoint is not None and endpoint.startswith("http://"):
        options["allow_http"] = True
    return options


def _endpoint(endpoint: str, bucket: str, *, path_style: bool) -> str:
    """The library wants the bucket's name in the host where it is to stand there."""
    if path_style:
        return endpoint
    parts = urlsplit(endpoint)
    if _is_ip_address(parts.hostname or ""):
        raise SettingError(
            "KAFSCALE_S3_PATH_STYLE=false puts the bucket's name before the host of "
            f"KAFSCALE_S3_ENDPOINT={endpoint}, which is an IP address: set it to true, or give the server's name"
        )
    return f"{parts.scheme}://{bucket}.{parts.netloc}"


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_ascii(settings: Settings) -> None:
    """The characters that a header may have: the library ends its thread over anything else."""
    for field in _OF_S3_ONLY:
        value = getattr(settings, field)
        if value is not None and not value.isascii():
            raise SettingError(f"KAFSCALE_{field.upper()} has characters that are not ASCII")


def _check_not_of_s3(settings: Settings) -> None:
    for field in _OF_S3_ONLY:
        if getattr(settings, field) is not None:
            raise SettingError(
                f"KAFSCALE_{field.upper()} is for S3 only, and KAFSCALE_S3_BUCKET={settings.s3_bucket} is not: "
                "leave it out; credentials come from the environment variables of the bucket's own platform"
            )
