"""The broker's settings as properties of a document: `flushIntervalMs: 500` for KAFSCALE_FLUSH_INTERVAL_MS.

Custom resources and the chart's values derive theirs from the one table of settings.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from kafscale.errors import SettingError
from kafscale.settings.broker import SETTINGS
from kafscale.settings.rows import SettingRow

PLACED_ELSEWHERE: Final = frozenset(
    {
        "broker_id",
        "broker_addr",
        "broker_host",
        "broker_port",
        "external_addr",
        "external_host",
        "external_port",
        "listeners",
        "advertised_listeners",
        "listener_security_protocol_map",
        "allow_plaintext",
        "authorizer",
        "super_users",
        "ssl_certificate_file",
        "ssl_key_file",
        "ssl_key_password",
        "ssl_client_ca_file",
        "ssl_client_auth",
        "metrics_addr",
        "metrics_token_file",
        "rack",
        "data_dir",
        "etcd_endpoints",
        "etcd_prefix",
        "etcd_username",
        "etcd_password",
        "etcd_ca",
        "etcd_cert",
        "etcd_key",
        "s3_bucket",
        "s3_region",
        "s3_endpoint",
        "s3_namespace",
        "s3_access_key",
        "s3_secret_key",
        "s3_session_token",
        "s3_read_bucket",
        "s3_read_region",
        "s3_read_endpoint",
        "backup_bucket",
        "backup_prefix",
        "backup_region",
        "backup_endpoint",
        "backup_access_key",
        "backup_secret_key",
        "backup_kms_arn",
        "s3_kms_arn",
        "s3_path_style",
    }
)
"""Fields of `Settings` that other parts of a cluster's specification determine."""


def property_name(row: SettingRow) -> str:
    """`flushIntervalMs` for KAFSCALE_FLUSH_INTERVAL_MS."""
    first, *others = row.variable.removeprefix("KAFSCALE_").lower().split("_")
    return first + "".join(word.capitalize() for word in others)


ROWS: Final[Mapping[str, SettingRow]] = {
    property_name(row): row for row in SETTINGS if row.field not in PLACED_ELSEWHERE
}
"""The settings that a cluster's `config` may contain, by property name."""


def schema() -> dict[str, Any]:
    """JSON Schema of `config`; unknown names are refused."""
    return {
        "type": "object",
        "description": "The brokers' settings: every one that has no place of its own in the specification.",
        "additionalProperties": False,
        "properties": {name: _property(row) for name, row in sorted(ROWS.items())},
    }


def _property(row: SettingRow) -> dict[str, Any]:
    return {
        "description": f"{row.documentation} {row.variable}; default: {row.default}. Legal: {row.kind.legal}.",
        **row.kind.schema,
    }


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Converts `config` to variables. Raises `SettingError` for an unknown name or an invalid value."""
    found = {}
    for name, value in config.items():
        row = ROWS.get(name)
        if row is None:
            raise SettingError(f"config.{name} is not a setting; legal are {', '.join(sorted(ROWS))}")
        text = _as_text(value)
        try:
            row.kind.parse(text)
        except ValueError:
            raise SettingError(f"config.{name}={value!r} is not legal: it must be {row.kind.legal}") from None
        found[row.variable] = text
    return found


def _as_text(value: Any) -> str:
    """The value as the chart writes it, too: a small number without an exponent."""
    if isinstance(value, bool):
        return str(value).lower()
    return format(Decimal(str(value)), "f") if isinstance(value, float) else str(value)
