"""All settings of the broker, as one flat object, and what makes it of an environment."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafscale.errors import SettingError
from kafscale.masking import shown_value
from kafscale.settings.authorization import AuthorizationSettings
from kafscale.settings.authorization import AuthorizerKind as AuthorizerKind
from kafscale.settings.backup import BackupSettings
from kafscale.settings.groups import GroupSettings
from kafscale.settings.journal import JournalBucketUse as JournalBucketUse
from kafscale.settings.journal import JournalSettings, SingleZone, is_directory_bucket
from kafscale.settings.kinds import Address, ExplainedValueError
from kafscale.settings.listener_list import ListeningSettings, listener_specs
from kafscale.settings.listeners import ListenerSettings
from kafscale.settings.prices import PriceSettings
from kafscale.settings.requests import RequestSettings
from kafscale.settings.rows import SettingRow as SettingRow
from kafscale.settings.rows import row_of
from kafscale.settings.running import LogFormat as LogFormat
from kafscale.settings.running import LogLevel as LogLevel
from kafscale.settings.running import RunningSettings
from kafscale.settings.sasl import SaslSettings
from kafscale.settings.segments import SegmentSettings
from kafscale.settings.stores import StoreSettings
from kafscale.settings.tls import TlsSettings
from kafscale.settings.transactions import TransactionSettings
from kafscale.settings.writing import CompressionCodec as CompressionCodec
from kafscale.settings.writing import WritingSettings

PREFIX = "KAFSCALE_"

TABLES: Final = (
    ListenerSettings,
    TlsSettings,
    SaslSettings,
    AuthorizationSettings,
    WritingSettings,
    RequestSettings,
    GroupSettings,
    TransactionSettings,
    RunningSettings,
    StoreSettings,
    JournalSettings,
    SegmentSettings,
    BackupSettings,
    PriceSettings,
)
"""The tables that `Settings` is composed of, in the order of the documentation. None knows another."""


@dataclass(frozen=True, kw_only=True)
class Settings(
    ListeningSettings,
    SaslSettings,
    AuthorizationSettings,
    WritingSettings,
    RequestSettings,
    GroupSettings,
    TransactionSettings,
    RunningSettings,
    StoreSettings,
    JournalSettings,
    SegmentSettings,
    BackupSettings,
    PriceSettings,
):
    """Everything that the broker runs with. `load_settings` is the only way in from the environment."""


SETTINGS: tuple[SettingRow, ...] = tuple(
    row_of(field) for table in TABLES for field in dataclasses.fields(table)
)


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
    except ValueError as problem:
        reason = f" ({problem})" if isinstance(problem, ExplainedValueError) and not row.is_secret else ""
        shown = "" if row.is_secret else f"={shown_value(text)}"
        raise SettingError(
            f"{row.variable}{shown} is not legal: it must be {row.kind.legal}{reason}"
        ) from None


_MODERN_PROTOCOLS: Final = ("consumer", "share")

_GROUP_LIMITS: Final = tuple(
    (f"group_{protocol}_{low}{name}", f"group_{protocol}_{high}{name}", f"a group's {meaning} is not {limit}")
    for protocol in _MODERN_PROTOCOLS
    for name, meaning in (
        ("session_timeout_ms", "session timeout"),
        ("heartbeat_interval_ms", "heartbeat interval"),
    )
    for low, high, limit in (("min_", "", "less"), ("", "max_", "more"))
)

_ANSWER_LIMITS: Final = tuple(
    (
        "offsets_commit_timeout_ms",
        f"group_{protocol}_session_timeout_ms",
        "a member whose answer waited longer would have been removed before it came",
    )
    for protocol in _MODERN_PROTOCOLS
)

_SHARE_LIMITS: Final = (
    (
        "group_share_min_record_lock_duration_ms",
        "group_share_record_lock_duration_ms",
        "a group's lock duration is not less",
    ),
    (
        "group_share_record_lock_duration_ms",
        "group_share_max_record_lock_duration_ms",
        "a group's lock duration is not more",
    ),
    (
        "group_share_max_size",
        "group_share_max_share_sessions",
        "all members of a share group may fetch from one broker",
    ),
)


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
        *_GROUP_LIMITS,
        *_SHARE_LIMITS,
        *_ANSWER_LIMITS,
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
    for protocol in _MODERN_PROTOCOLS:
        _check_heartbeats(settings, protocol)
    _check_cluster(settings)
    _check_sasl(settings)
    _check_journal_bucket(settings)
    listening: dict[Address, str] = {}
    places = [(spec.set_by, spec.address) for spec in listener_specs(settings)]
    for variable, where in (*places, ("KAFSCALE_METRICS_ADDR", settings.metrics_addr)):
        other = listening.setdefault(where, variable)
        if other != variable and where.port:
            raise SettingError(f"{variable}={where} is not legal: it must differ from {other}={where}")


def _check_heartbeats(settings: Settings, protocol: str) -> None:
    interval, timeout = f"group_{protocol}_heartbeat_interval_ms", f"group_{protocol}_session_timeout_ms"
    interval_ms, timeout_ms = getattr(settings, interval), getattr(settings, timeout)
    if interval_ms >= timeout_ms:
        raise SettingError(
            f"{variable_of(interval)}={interval_ms} is not legal: it must be less than "
            f"{variable_of(timeout)}={timeout_ms}, because a member that is alive sends heartbeats meanwhile"
        )


def _check_cluster(settings: Settings) -> None:
    needs = (
        ("etcd_endpoints", "s3_bucket", "the brokers of a cluster share one object store"),
        ("external_host", "external_addr", "it is for clients of that address"),
        ("external_port", "external_addr", "it is for clients of that address"),
        ("etcd_prefix", "etcd_endpoints", "it is a prefix of keys in etcd"),
        ("etcd_username", "etcd_password", "etcd asks for both"),
        ("etcd_password", "etcd_username", "etcd asks for both"),
        ("ssl_certificate_file", "ssl_key_file", "a certificate is of no use without its key"),
        ("ssl_key_file", "ssl_certificate_file", "a key is of no use without its certificate"),
        ("ssl_key_password", "ssl_key_file", "it is the key's"),
        ("etcd_cert", "etcd_key", "a certificate is of no use without its key"),
        ("etcd_key", "etcd_cert", "a key is of no use without its certificate"),
        ("s3_access_key", "s3_secret_key", "one is of no use without the other"),
        ("s3_secret_key", "s3_access_key", "one is of no use without the other"),
        ("s3_session_token", "s3_access_key", "the token belongs to temporary credentials"),
        ("journal_bucket", "s3_bucket", "everything but journals is in that bucket"),
        ("journal_region", "journal_bucket", "it is the journal bucket's"),
        ("journal_endpoint", "journal_bucket", "it is the journal bucket's"),
        ("journal_price_per_1000_puts", "journal_bucket", "it is the journal bucket's"),
        ("journal_price_per_1000_gets", "journal_bucket", "it is the journal bucket's"),
        ("journal_price_per_gb_written", "journal_bucket", "it is the journal bucket's"),
        ("journal_price_per_gb_read", "journal_bucket", "it is the journal bucket's"),
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


def _check_sasl(settings: Settings) -> None:
    if "OAUTHBEARER" in settings.sasl_enabled_mechanisms and not settings.sasl_oauthbearer_jwks_endpoint_url:
        raise SettingError(
            f"{variable_of('sasl_enabled_mechanisms')}=...OAUTHBEARER needs "
            f"{variable_of('sasl_oauthbearer_jwks_endpoint_url')} to be set: tokens are checked with its keys"
        )


def _check_journal_bucket(settings: Settings) -> None:
    name = settings.journal_bucket
    if name is None:
        return
    if name.removeprefix("s3://") == (settings.s3_bucket or "").removeprefix("s3://"):
        raise SettingError(
            f"{variable_of('journal_bucket')}={name} is not legal: it must differ from "
            f"{variable_of('s3_bucket')}; leave it out where journals are in the same bucket"
        )
    if is_directory_bucket(name) and settings.journal_single_zone is not SingleZone.ACCEPT:
        raise SettingError(
            f"{variable_of('journal_bucket')}={name} is a directory bucket, which one zone stores: if that zone is "
            f"lost, acknowledged records that are not sealed yet (of up to {variable_of('seal_max_age_ms')}="
            f"{settings.seal_max_age_ms}) are lost; set {variable_of('journal_single_zone')}=accept to accept that"
        )


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
