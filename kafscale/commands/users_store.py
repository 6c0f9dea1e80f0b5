"""Reads and writes users in the metadata store, for `kafscale users`."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence

from kafscale.broker.stores import open_for_reading, open_metadata
from kafscale.cluster.user_updates import change_user
from kafscale.errors import CorruptDataError, SettingError
from kafscale.formats.user_record import ScramMechanism, UserRecord, decode_user_record
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.scram import credential_of, new_salt
from kafscale.settings.broker import Settings
from kafscale.tools.recovery.rebuild import patiently

EXIT_DONE = 0
EXIT_UNREADABLE = 1

Write = Callable[[str], None]


class UsersCommand:
    """Works on the store that the settings name. `output` takes the result, `errors` what is wrong, line by line.

    Every method returns the exit status, and raises `SettingError`, `StartupError`, `StoreError`.
    """

    def __init__(self, settings: Settings, *, output: Write, errors: Write) -> None:
        self._settings = settings
        self._output = output
        self._errors = errors

    def add(self, name: str, password: bytes, mechanisms: Sequence[ScramMechanism], iterations: int) -> int:
        """Give a user a password, for these mechanisms."""
        changes = {one: credential_of(one, password, new_salt(), iterations) for one in mechanisms}
        return self._change(lambda store: change_user(store, name, changes))

    def remove(self, name: str, mechanisms: Sequence[ScramMechanism]) -> int:
        """Remove a user's credentials of these mechanisms, without any the user."""

        async def work(store: MetadataStore) -> int:
            chosen = mechanisms
            if not chosen:
                found = await store.get(keys.user(name))
                chosen = [] if found is None else list(decode_user_record(found.key, found.value).scram)
            if not chosen:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND)
            return await change_user(store, name, dict.fromkeys(chosen))

        return self._change(work)

    def list_all(self, *, as_json: bool) -> int:
        """Print the users. One that cannot be read is an error line, and the others are printed."""
        records, problems = asyncio.run(self._read())
        for problem in problems:
            self._errors(problem)
        self._output(_as_json(records) if as_json else _as_text(records))
        return EXIT_UNREADABLE if problems else EXIT_DONE

    def _change(self, work: Callable[[MetadataStore], Awaitable[int]]) -> int:
        async def run() -> None:
            async with contextlib.AsyncExitStack() as stack:
                store = await open_metadata(self._settings, stack)
                await patiently(lambda: work(store))

        try:
            asyncio.run(run())
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.RESOURCE_NOT_FOUND:
                raise
            raise SettingError("there is no such user, or not with that mechanism") from None
        return EXIT_DONE

    async def _read(self) -> tuple[list[UserRecord], list[str]]:
        """The users by name, and what cannot be read."""
        records, problems = [], []
        async with contextlib.AsyncExitStack() as stack:
            metadata, _ = await open_for_reading(self._settings, stack)
            for item in (await metadata.range(keys.USERS)).items:
                try:
                    records.append(decode_user_record(item.key, item.value))
                except CorruptDataError as problem:
                    problems.append(str(problem))
        return sorted(records, key=lambda record: record.name), problems


def _as_text(records: Sequence[UserRecord]) -> str:
    if not records:
        return "no users"
    width = max(len(record.name) for record in records)
    return "\n".join(f"{record.name:<{width}}  {_mechanisms(record)}" for record in records)


def _mechanisms(record: UserRecord) -> str:
    return ", ".join(
        f"{one.sasl_name} ({credential.iterations} iterations)"
        for one, credential in sorted(record.scram.items())
    )


def _as_json(records: Sequence[UserRecord]) -> str:
    fields = [
        {
            "name": record.name,
            "mechanisms": {
                one.sasl_name: credential.iterations for one, credential in sorted(record.scram.items())
            },
        }
        for record in records
    ]
    return json.dumps({"users": fields}, indent=2)
