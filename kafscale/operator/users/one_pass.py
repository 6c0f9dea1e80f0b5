"""One pass over a KafscaleUser that is not being deleted."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from kafscale.operator import resource_status
from kafscale.operator.cluster_resources import (
    Clusters,
    Manifest,
    ResourceApi,
    live_cluster,
    put_status,
    record_event,
    verdict_of,
    write_verdict,
)
from kafscale.operator.errors import KafscaleConflictError
from kafscale.operator.keyed_locks import KeyedLocks
from kafscale.operator.kube.kinds import USER
from kafscale.operator.kube.roles import Applies
from kafscale.operator.resource_status import Phase, Verdict
from kafscale.operator.stores.cluster_connection import LiveCluster
from kafscale.operator.users import owner as user_owner
from kafscale.operator.users.notes import notes
from kafscale.operator.users.plan import named_parts, plan_user
from kafscale.operator.users.rule_keys import RuleKeys
from kafscale.operator.users.secret_work import SecretTakenError, UserSecret
from kafscale.operator.users.spec import UserSpec, user_spec
from kafscale.operator.users.status import Known, Reason
from kafscale.operator.users.work import UserWork

_logger = logging.getLogger(__name__)

_MAX_EVENT_NAME: Final = 80


class UserApi(ResourceApi, Applies, Protocol):
    """The part of `KubeClient` that is needed here."""


class _NamedTwiceError(Exception):
    """Another resource owns the user."""


class UserPass:
    """One pass over one resource that is not being deleted."""

    def __init__(
        self,
        api: UserApi,
        clusters: Clusters,
        rules: RuleKeys,
        locks: KeyedLocks,
        now: Callable[[], datetime],
        resource: Manifest,
    ) -> None:
        self._api = api
        self._clusters = clusters
        self._rules = rules
        self._locks = locks
        self._now = now
        self._resource = resource
        self._known = Known.of_status(resource.get("status", {}))

    async def run(self) -> Phase:
        """Carries the resource out as far as possible, writes the status, returns the phase. Raises `KubeError`."""
        try:
            verdict = await verdict_of(self._carry_out())
        except _NamedTwiceError as problem:
            verdict = Verdict(phase=Phase.FAILED, reason=Reason.NAMED_TWICE, message=str(problem))
        except SecretTakenError as problem:
            verdict = Verdict(phase=Phase.FAILED, reason=Reason.SECRET_TAKEN, message=str(problem))
        except KafscaleConflictError as problem:
            verdict = Verdict(phase=Phase.PENDING, reason=Reason.NOT_DONE_YET, message=str(problem))
        await write_verdict(self._api, USER, self._resource, verdict, self._known, self._now())
        return verdict.phase

    async def _carry_out(self) -> Verdict:
        wanted = user_spec(self._resource)
        async with live_cluster(self._api, self._clusters, self._resource) as live:
            await self._intend(wanted)
            password = await self._keep_secret(wanted)
            await self._keep_user(wanted, live, password)
            remarks = "".join(f"; {note}" for note in notes(wanted, live.settings))
        self._known = Known(
            principal=str(wanted.principal), secret=self._secret_name(wanted), applied=named_parts(wanted)
        )
        return Verdict(
            phase=Phase.READY,
            reason=Reason.AS_DECLARED,
            message=f"{wanted.principal} is as declared{remarks}",
        )

    async def _intend(self, wanted: UserSpec) -> None:
        """Records the intent in the status. Raises `_NamedTwiceError`, `KubeError`; then nothing is touched."""
        if self._known.principal is None:
            namespace = self._resource["metadata"]["namespace"]
            async with self._locks.held(namespace, wanted.cluster, wanted.name):
                await self._check_owner(wanted)
                await self._write_intent(wanted)
        else:
            await self._write_intent(wanted)

    async def _check_owner(self, wanted: UserSpec) -> None:
        resources = await self._api.list(USER, self._resource["metadata"]["namespace"])
        owner = user_owner.owner(self._resource, resources)
        if owner["metadata"]["uid"] != self._resource["metadata"]["uid"]:
            raise _NamedTwiceError(
                f"user {wanted.name[:_MAX_EVENT_NAME]} of cluster {wanted.cluster} is that of the KafscaleUser "
                f"{owner['metadata']['name']}: remove one of the two"
            )

    async def _write_intent(self, wanted: UserSpec) -> None:
        intent = Known(
            principal=str(wanted.principal),
            secret=self._secret_name(wanted) or self._known.secret,
            applied=self._known.applied | named_parts(wanted),
        )
        if intent != self._known:
            before = self._resource.get("status", {})
            status = resource_status.status_of_intent(before, intent)
            self._resource = await put_status(self._api, USER, self._resource, status)
            self._known = intent

    def _secret_name(self, wanted: UserSpec) -> str | None:
        return str(self._resource["metadata"]["name"]) if wanted.has_secret else None

    async def _keep_secret(self, wanted: UserSpec) -> bytes | None:
        """Writes the Secret first: a password that is in use must be in it. Returns the password, if any."""
        secret = UserSecret(self._api, self._resource)
        if not wanted.has_secret:
            if self._known.secret is not None and await secret.empty():
                await self._record("SecretWritten", f"Secret {self._known.secret} is emptied")
            return None
        password, change = await secret.keep(wanted, self._now())
        if change is not None:
            await self._record("SecretWritten", f"Secret {self._secret_name(wanted)} is {change}")
        return password

    async def _keep_user(self, wanted: UserSpec, live: LiveCluster, password: bytes | None) -> None:
        user = UserWork(live, self._rules, wanted.name)
        found = await user.find(password, wanted.mechanism)
        plan = plan_user(wanted, self._known.applied, found)
        if plan.is_empty:
            return
        await user.carry_out(plan, password)
        await self._record(
            "UserChanged", f"{wanted.principal}"[:_MAX_EVENT_NAME] + f": {'; '.join(plan.changes())}"
        )

    async def _record(self, reason: str, message: str) -> None:
        _logger.info("%s: %s", self._resource["metadata"]["name"], message)
        await record_event(self._api, self._resource, reason, message, warning=False)
