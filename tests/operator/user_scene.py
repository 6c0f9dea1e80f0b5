"""One cluster in memory, and an operator of its users."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

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
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Delete, Put
from kafscale.operator.resource_metrics import USER_RESOURCES, ResourceMetrics
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.users.reconciler import UserReconciler
from kafscale.security.scram import credential_of, is_password_of
from tests.operator.one_cluster import OneCluster, live_cluster
from tests.support.kube_memory import NAMESPACE
from tests.support.kube_users import KubeUsers

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@dataclass
class Scene:
    """`store`: as brokers and Kafka's tools see it. `now`: the operator's clock."""

    kube: KubeUsers
    store: Any
    live: LiveCluster
    clusters: OneCluster
    registry: CollectorRegistry
    woken: list[str] = field(default_factory=list)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def operator(
        self, api: Any = None, live: LiveCluster | None = None, registry: CollectorRegistry | None = None
    ) -> UserReconciler:
        """One that has just started."""
        clusters = self.clusters if live is None else OneCluster(live)
        metrics = ResourceMetrics(registry or CollectorRegistry(), USER_RESOURCES)
        return UserReconciler(
            api or self.kube,
            clusters,
            lambda _, name: self.woken.append(name),
            metrics,
            lambda: self.now,
        )

    async def look(self, name: str = "u") -> float:
        return await self.operator().reconcile(NAMESPACE, name)

    async def finish(self, name: str = "u") -> bool:
        return await self.operator().finish(NAMESPACE, name)

    async def credentials(self, name: str = "u") -> dict[ScramMechanism, ScramCredential]:
        found = await self.store.get(keys.user(name))
        return {} if found is None else dict(decode_user_record(found.key, found.value).scram)

    async def accepts(self, password: str, mechanism: ScramMechanism = SHA_512, name: str = "u") -> bool:
        """True if a broker would let the user in."""
        found = (await self.credentials(name)).get(mechanism)
        return found is not None and is_password_of(found, mechanism, password.encode())

    async def set_password(self, password: str, *mechanisms: ScramMechanism, name: str = "u") -> None:
        """By Kafka's tools."""
        scram = {each: credential_of(each, password.encode(), b"salt", 4096) for each in mechanisms}
        await self.put(keys.user(name), encode_user_record(UserRecord(name, scram)))

    async def rules(self) -> set[str]:
        """The keys of all rules, without their prefix."""
        return {each.key.removeprefix(keys.ACLS) for each in (await self.store.range(keys.ACLS)).items}

    async def add_rule(self, rule: str) -> None:
        """By Kafka's tools."""
        await self.put(keys.ACLS + rule, STORED_ACL)

    async def remove_rule(self, rule: str) -> None:
        await self.store.transact([], [Delete(keys.ACLS + rule)])

    async def quotas(self, name: str = "u") -> dict[str, float]:
        found = await self.store.get(quota_key(QuotaEntity(user=name)))
        return {} if found is None else dict(decode_quotas(found.key, found.value))

    async def set_quotas(self, name: str = "u", **quotas: float) -> None:
        """By Kafka's tools."""
        await self.put(quota_key(QuotaEntity(user=name)), encode_quotas(quotas))

    async def put(self, key: str, value: bytes) -> None:
        await self.store.transact([], [Put(key, value)])

    async def revision(self) -> int:
        return int((await self.store.range("")).revision)


@asynccontextmanager
async def user_scene() -> AsyncIterator[Scene]:
    """A cluster that has started, with an empty store."""
    store = MemoryStore()
    live = await live_cluster(store)
    kube = KubeUsers()
    kube.add_cluster()
    yield Scene(kube, store, live, OneCluster(live), CollectorRegistry())
    await store.close()


def scram(kind: str = "scram-sha-512", **parts: Any) -> dict[str, Any]:
    """A specification's `authentication`."""
    return {"type": kind, **parts}


def acls(*rules: tuple[str, str, str]) -> dict[str, Any]:
    """A specification's `authorization`: rules for topics of name, operation and type."""
    return {
        "type": "simple",
        "acls": [
            {"resource": {"type": "topic", "name": name}, "operations": [operation], "type": kind}
            for name, operation, kind in rules
        ],
    }
