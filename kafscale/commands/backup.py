"""`kafscale backup`: takes snapshots of the metadata store, lists them, and checks that they are whole."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.broker.stores import backup_location, open_backups, open_for_reading
from kafscale.commands.backup_report import checked_fields, checked_text, list_text, stored_fields, taken_text
from kafscale.errors import CorruptDataError, ObjectNotFoundError, SettingError
from kafscale.settings.broker import Settings
from kafscale.tools.backup.snapshot_keys import StoredSnapshot
from kafscale.tools.backup.snapshots import Snapshots
from kafscale.tools.recovery.rebuild import patiently
from kafscale.tools.recovery.snapshot_contents import SnapshotContents, read_contents

EXIT_DONE: Final = 0
EXIT_DAMAGED: Final = 3

NEWEST: Final = "newest"

_MS_PER_DAY: Final = 86_400_000

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which snapshots stay: the newest `keep`, and those younger than `keep_days`."""

    keep: int
    keep_days: int = 0


class BackupCommand:
    """The options of the command line. `output` takes the result, `errors` what is wrong, both line by line."""

    def __init__(self, settings: Settings, *, as_json: bool, output: Write, errors: Write) -> None:
        self._settings = settings
        self._as_json = as_json
        self._output = output
        self._errors = errors

    def create(self, retention: Retention | None) -> int:
        """Take a snapshot, then remove old ones; None: remove none. Returns the exit status.

        Raises `SettingError`, `StartupError`, `StoreError`, `CorruptDataError`, `NothingToBackUpError`.
        """
        return asyncio.run(self._create(retention))

    def list_all(self) -> int:
        """Print all that there are, oldest first. Returns the exit status; raises `SettingError`, `StoreError`."""
        return asyncio.run(self._list())

    def verify(self, keys: Sequence[str]) -> int:
        """Read snapshots from end to end and take every value in them apart; returns the exit status.

        `keys` may have `NEWEST`; none: all that there are. Raises `SettingError`, `StoreError`.
        """
        return asyncio.run(self._verify(keys))

    async def _create(self, retention: Retention | None) -> int:
        async with contextlib.AsyncExitStack() as stack:
            metadata, _ = await open_for_reading(self._settings, stack)
            snapshots = open_backups(self._settings, stack)
            taken = await patiently(lambda: snapshots.take(metadata))
            removed: Sequence[StoredSnapshot] = ()
            if retention is not None:
                keep_for_ms = retention.keep_days * _MS_PER_DAY
                removed = await patiently(
                    lambda: snapshots.remove_expired(taken, keep=retention.keep, keep_for_ms=keep_for_ms)
                )
        location = backup_location(self._settings, taken.stored.key)
        if self._as_json:
            fields = {
                **stored_fields(taken.stored),
                "location": location,
                "keys": taken.header.keys,
                "sha256": taken.sha256,
                "removed": [one.key for one in removed],
            }
            self._output(json.dumps(fields, indent=2))
        else:
            self._output(taken_text(taken, location, removed))
        return EXIT_DONE

    async def _list(self) -> int:
        async with contextlib.AsyncExitStack() as stack:
            snapshots = open_backups(self._settings, stack)
            found = await patiently(snapshots.find)
        if self._as_json:
            self._output(json.dumps([stored_fields(one) for one in found], indent=2))
        else:
            self._output(list_text(found, snapshots.folder))
        return EXIT_DONE

    async def _verify(self, keys: Sequence[str]) -> int:
        async with contextlib.AsyncExitStack() as stack:
            snapshots = open_backups(self._settings, stack)
            checked = [
                (key, found)
                for key in await self._named(snapshots, keys)
                if (found := await self._check(snapshots, key, is_asked_for=bool(keys))) is not None
            ]
        if self._as_json:
            self._output(json.dumps([checked_fields(key, found) for key, found in checked], indent=2))
        else:
            for key, found in checked:
                if isinstance(found, SnapshotContents):
                    self._output(checked_text(found))
                else:
                    self._errors(f"damaged: {key}: {found}")
        is_sound = all(isinstance(found, SnapshotContents) for _, found in checked)
        return EXIT_DONE if is_sound else EXIT_DAMAGED

    async def _named(self, snapshots: Snapshots, keys: Sequence[str]) -> list[str]:
        found = await patiently(snapshots.find)
        if not found and (not keys or NEWEST in keys):
            raise SettingError(f"there is no snapshot under {snapshots.folder}")
        if not keys:
            return [one.key for one in found]
        return [found[-1].key if key == NEWEST else key for key in keys]

    async def _check(
        self, snapshots: Snapshots, key: str, *, is_asked_for: bool
    ) -> SnapshotContents | str | None:
        """The snapshot's contents, or what is wrong with it; None when it was removed since it was listed."""
        try:
            header, entries = await patiently(lambda: snapshots.read(key))
            contents = read_contents(key, header, entries)
        except ObjectNotFoundError:
            if not is_asked_for:
                return None
            raise SettingError(f"{key} names no object of the backup bucket") from None
        except CorruptDataError as problem:
            return problem.problem
        if contents.unknown:
            return f"it holds keys that this release does not know, {contents.unknown[0]!r} for one"
        return contents
