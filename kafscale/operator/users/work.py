"""Reads and writes users in the metadata store, in the brokers' formats."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from kafscale.formats.acl_record import STORED_ACL
from kafscale.formats.quota_record import QuotaEntity, decode_quotas, encode_quotas, quota_key
from kafscale.formats.user_record import (
    ScramCredential,
    ScramMechanism,
    UserRecord,
    decode_user_record,
    encode_user_record,
)
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, Operation, Put
from kafscale.operator.errors import KafscaleConflictError
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.users.plan import UserFound, UserPlan
from kafscale.operator.users.rule_keys import RuleKeys
from kafscale.operator.users.spec import QUOTA_NAMES
from kafscale.security.principal import USER, Principal
from kafscale.security.scram import DEFAULT_ITERATIONS, credential_of, is_password_of, new_salt

_ALLOWS: Final = "/allow"


class UserWork:
    """One user of one cluster. Methods raise `StoreError`, `OtherClusterError` and `CorruptDataError`.

    `name`: as in its principal.
    """

    def __init__(self, live: LiveCluster, rules: RuleKeys, name: str) -> None:
        self._store = live.store
        self._rules = rules
        self._name = name
        self._principal = str(Principal(USER, name))
        self._user_key = keys.user(name)
        self._quota_key = quota_key(QuotaEntity(user=name))

    async def find(self, password: bytes | None = None, mechanism: ScramMechanism | None = None) -> UserFound:
        """Reads the user, and checks the mechanism's credential with the password if there is one."""
        user = self._decoded(await self._store.get(self._user_key))
        found = None if mechanism is None else user.get(mechanism)
        has_password = False
        if found is not None and mechanism is not None and password is not None:
            has_password = await asyncio.to_thread(is_password_of, found, mechanism, password)
        quotas = self._decoded_quotas(await self._store.get(self._quota_key))
        return UserFound(
            mechanisms=frozenset(user),
            has_password=has_password,
            rules=await self._rules.of_principal(self._store, self._principal),
            quotas={name: value for name, value in quotas.items() if name in QUOTA_NAMES},
        )

    async def carry_out(self, plan: UserPlan, password: bytes | None = None) -> None:
        """Carries out the plan, so that the user never has more rights on the way than before or after it.

        `password`: of the plan's mechanism. Raises `KafscaleConflictError` if others change the user meanwhile.
        """
        if plan.delete_credentials:
            await self._write_credentials({})
        if plan.quotas is not None:
            await self._write_quotas(plan.quotas)
        await self._write_rules(plan)
        if plan.mechanism is not None and password is not None:
            credential = await asyncio.to_thread(
                credential_of, plan.mechanism, password, new_salt(), DEFAULT_ITERATIONS
            )
            await self._write_credentials({plan.mechanism: credential})

    async def _write_rules(self, plan: UserPlan) -> None:
        """Denials come first and go last."""
        operations: list[Operation] = [
            *(Put(key, STORED_ACL) for key in sorted(plan.put_rules) if not key.endswith(_ALLOWS)),
            *(Delete(key) for key in sorted(plan.delete_rules) if key.endswith(_ALLOWS)),
            *(Put(key, STORED_ACL) for key in sorted(plan.put_rules) if key.endswith(_ALLOWS)),
            *(Delete(key) for key in sorted(plan.delete_rules) if not key.endswith(_ALLOWS)),
        ]
        try:
            for some in _batches(operations, self._store.max_operations):
                await self._store.transact([], some)
        except BaseException:
            self._rules.forget(self._store)
            raise
        self._rules.changed(self._store, self._principal, plan.put_rules, plan.delete_rules)

    async def _write_credentials(self, credentials: Mapping[ScramMechanism, ScramCredential]) -> None:
        before = await self._store.get(self._user_key)
        self._decoded(before)  # one of a newer release is not overwritten
        record = encode_user_record(UserRecord(self._name, credentials)) if credentials else None
        await self._replace(self._user_key, before, record)

    async def _write_quotas(self, quotas: Mapping[str, float]) -> None:
        before = await self._store.get(self._quota_key)
        others = {
            name: value for name, value in self._decoded_quotas(before).items() if name not in QUOTA_NAMES
        }
        both = {**others, **quotas}
        await self._replace(self._quota_key, before, encode_quotas(both) if both else None)

    async def _replace(self, key: str, before: KeyValue | None, value: bytes | None) -> None:
        if before is None and value is None:
            return
        compare = Compare(key, ABSENT if before is None else before.mod_revision)
        change = Delete(key) if value is None else Put(key, value)
        result = await self._store.transact([compare], [change])
        if not result.succeeded:
            raise KafscaleConflictError(f"user {self._name} is being changed by others; it is read again")

    def _decoded(self, held: KeyValue | None) -> Mapping[ScramMechanism, ScramCredential]:
        return {} if held is None else decode_user_record(held.key, held.value).scram

    def _decoded_quotas(self, held: KeyValue | None) -> Mapping[str, float]:
        return {} if held is None else decode_quotas(held.key, held.value)


def _batches(operations: Iterable[Operation], size: int) -> Iterable[list[Operation]]:
    pending: list[Operation] = []
    for operation in operations:
        pending.append(operation)
        if len(pending) >= size:
            yield pending
            pending = []
    if pending:
        yield pending
