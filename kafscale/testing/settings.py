"""The settings of a broker in a test: what differs from production's defaults, and how keywords are checked."""

import difflib
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from kafscale.settings.broker import SETTINGS, Settings, load_settings
from kafscale.settings.journal import JournalSettings
from kafscale.settings.rows import SettingRow
from kafscale.settings.stores import StoreSettings
from kafscale.testing.clock import LEASE_TTL_SEC

DEFAULTS: Final[Mapping[str, str]] = {
    "broker_addr": "127.0.0.1:0",
    # Each produce is flushed at once; there are no requests that would cost anything.
    "flush_interval_ms": "0",
    "flushes_per_sec": "0",
    # A test's consumers do not wait for others to join.
    "group_initial_rebalance_delay_ms": "0",
    # Batches stay as they came.
    "compression_codec": "producer",
    "read_ahead_segments": "0",
    "shutdown_linger_ms": "0",
    # The clock of a test walks in steps of a quarter of it.
    "lease_ttl_sec": str(LEASE_TTL_SEC),
}
"""As in the environment, by field of `Settings`. All other settings are production's."""

_ROWS: Final = {row.field: row for row in SETTINGS}
_PLACES: Final = frozenset(
    name
    for table in (StoreSettings, JournalSettings)
    for name in table.__dataclass_fields__
    if name.startswith(("data_", "etcd_", "s3_bucket", "s3_endpoint", "s3_region", "journal_"))
) | {"s3_read_bucket", "backup_bucket", "metrics_addr"}


def settings_for_test(given: Mapping[str, Any]) -> Settings:
    """The settings for these keywords: values as in Python, or as texts of the environment. None: the default.

    Raises `TypeError` for a name that is no setting, or that means nothing in a test, and `SettingError` for a
    value that is not legal.
    """
    texts = dict(DEFAULTS)
    if given.get("listeners") is not None:
        del texts["broker_addr"]
    for name, value in given.items():
        row = _row(name)
        if value is None:
            texts.pop(name, None)
        else:
            texts[name] = _text(row, value)
    return load_settings({_ROWS[name].variable: text for name, text in texts.items()})


def _row(name: str) -> SettingRow:
    row = _ROWS.get(name)
    if row is None:
        near = difflib.get_close_matches(name, _ROWS, n=2, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "see docs/settings.md"
        raise TypeError(f"{name!r} is not a setting of a broker: {hint}")
    if name in _PLACES:
        raise TypeError(f"{name!r} has no effect here: the stores of a broker in a test are in memory")
    return row


def _text(row: SettingRow, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list | set | frozenset):
        return ",".join(_text(row, part) for part in value)
    return str(value)
