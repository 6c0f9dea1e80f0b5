"""All settings of the broker, as one flat object, and what makes it of an environment."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafscale.errors import SettingError
from kafscale.masking import shown_value
from kafscale.settings.backup import BackupSettings
from kafscale.settings.groups import GroupSettings
from kafscale.settings.kinds import Address
from kafscale.settings.listeners import ListenerSettings
from kafscale.settings.requests import RequestSettings
from kafscale.settings.rows import SettingRow as SettingRow
from kafscale.settings.rows import row_of
from kafscale.settings.running import LogFormat as LogFormat
from kafscale.settings.running import LogLevel as LogLevel
from kafscale.settings.running import RunningSettings
from kafscale.settings.segments import SegmentSettings
from kafscale.settings.stores import StoreSettings
from kafscale.settings.writing import CompressionCodec as CompressionCodec
from kafscale.settings.writing import WritingSettings

PREFIX = "KAFSCALE_"

TABLES: Final = (
    ListenerSettings,
    WritingSettings,
    RequestSettings,
    GroupSettings,
    RunningSettings,
    StoreSettings,
    SegmentSettings,
    BackupSettings,
)
"""The tables that `Settings` is composed of, in the order of the documentation. None knows another."""


@dataclass(frozen=True, kw_only=True)
class Settings(
    ListenerSettings,
    WritingSettings,
    RequestSettings,
    GroupSettings,
    RunningSettings,
    StoreSettings,
    SegmentSettings,
    BackupSettings,
):
    """Everything that the broker runs with. `load_settings` is the only way in from the environment.

    `named`: the fields that the environment names, be it with their default.
    """

    named: frozenset[str] = dataclasses.field(default=frozenset(), repr=False, compare=False)


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
        ("external_host", "external_addr", "it is for clients of that address"),
        ("external_port", "external_addr", "it is for clients of that address"),
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
