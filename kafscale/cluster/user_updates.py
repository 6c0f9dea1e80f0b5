"""Changing users' SCRAM credentials. Any broker and any command may: what it read is compared when it writes."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError, UnknownFormatVersionError
from kafscale.formats.user_record import (
    ScramCredential,
    ScramMechanism,
    UserRecord,
    decode_user_record,
    encode_user_record,
)
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_USERS: Final = 100_000
"""Users with credentials: every broker keeps all of them in memory."""

CredentialChanges = Mapping[ScramMechanism, ScramCredential | None]
"""The new credential of a mechanism, None to delete it."""


async def change_user(store: MetadataStore, name: str, changes: CredentialChanges) -> int:
    """Change a user's credentials once; returns the revision from which they are in effect.

    Raises `KafkaError` RESOURCE_NOT_FOUND for a credential to delete that is not there, KAFKA_STORAGE_ERROR for a
    record of a later release, and `StoreError`.
    """
    key = keys.user(name)
    while True:
        found = await store.get(key)
        before = _stored(found)
        if any(new is None and mechanism not in before for mechanism, new in changes.items()):
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        after = {
            mechanism: credential
            for mechanism, credential in {**before, **changes}.items()
            if credential is not None
        }
        operation = Put(key, encode_user_record(UserRecord(name, after))) if after else Delete(key)
        revision = ABSENT if found is None else found.mod_revision
        result = await store.transact([Compare(key, revision)], [operation])
        if result.succeeded:
            return result.revision


def _stored(found: KeyValue | None) -> Mapping[ScramMechanism, ScramCredential]:
    """The user's credentials. A record that is damaged is replaced by the change."""
    if found is None:
        return {}
    try:
        return decode_user_record(found.key, found.value).scram
    except UnknownFormatVersionError as problem:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The record is of a later release.") from problem
    except CorruptDataError:
        return {}


class UserUpdates:
    """Writes credentials, each user's by itself, and waits until this broker knows them."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        *,
        max_users: int = MAX_USERS,
        retry_delay_sec: float = 0.1,
    ) -> None:
        self._store = store
        self._view = view
        self._max_users = max_users
        self._retry_delay_sec = retry_delay_sec

    async def alter(self, name: str, changes: CredentialChanges, *, timeout_ms: int) -> None:
        """Change a user's credentials.

        Raises `KafkaError` as `change_user`, POLICY_VIOLATION for one user too many, and REQUEST_TIMED_OUT, after
        which it may still come true.
        """
        if len(self._view.users) >= self._max_users and keys.user(name) not in self._view.users.items():
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"There are {self._max_users} users already.")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                revision = await self._until_known(name, changes)
                await self._view.wait_for(revision, keys.USERS)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"not done after {timeout_ms} ms; it may still be done"
            ) from None

    async def _until_known(self, name: str, changes: CredentialChanges) -> int:
        may_have_landed = False
        while True:
            try:
                return await change_user(self._store, name, changes)
            except StoreError as problem:
                may_have_landed = True
                logger.warning(
                    "the metadata store failed, changing a user again", extra={"problem": str(problem)}
                )
            except KafkaError as refusal:
                if may_have_landed and refusal.code is ErrorCode.RESOURCE_NOT_FOUND:
                    # Deleted by the attempt whose outcome was unknown, or by another since.
                    return ABSENT
                raise
            await asyncio.sleep(self._retry_delay_sec)
