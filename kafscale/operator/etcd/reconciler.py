"""Reconciles a cluster's managed etcd: objects, members, space. A pass looks, applies, reports, and does one step."""

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from kafscale.errors import StoreIndeterminateError
from kafscale.operator import api_names
from kafscale.operator.certificates import CA, CERTIFICATE, KEY
from kafscale.operator.cluster_part import PartApi, StatusShare, wanted_part
from kafscale.operator.cluster_spec import ClusterSpec, ManagedEtcd
from kafscale.operator.clusters.owned_objects import apply_own, owned
from kafscale.operator.conditions import Condition
from kafscale.operator.errors import KubeRefusedError, SpecError
from kafscale.operator.etcd import members_plan, upkeep_plan
from kafscale.operator.etcd.certificates import plan_secrets, secret_names
from kafscale.operator.etcd.conditions import (
    AS_SPECIFIED,
    GIVE_UP,
    HEALTHY,
    SPACE_HEALTHY,
    etcd_conditions,
    lost_data,
)
from kafscale.operator.etcd.maintenance import EtcdMaintenance, TlsFiles
from kafscale.operator.etcd.members_plan import AddMember, Begin, RemoveMember
from kafscale.operator.etcd.metrics import EtcdMetrics
from kafscale.operator.etcd.objects_plan import plan_objects
from kafscale.operator.etcd.rounds import EtcdRounds
from kafscale.operator.etcd.seen import NO_SPACE, EtcdSeen, is_raised, unhealthy_reason
from kafscale.operator.etcd.upkeep_plan import (
    DEFAULT_RULES,
    Compact,
    Defragment,
    DefragmentRules,
    Disarm,
    MoveLeader,
    Wait,
)
from kafscale.operator.kube.kinds import CONFIG_MAP, POD, SECRET, STATEFUL_SET
from kafscale.operator.kube.roles import Applies, Lists
from kafscale.operator.manifests import etcd_start, names
from kafscale.operator.manifests.etcd_start import EtcdStart, StartPhase
from kafscale.operator.stores.metadata_access import secret_data
from kafscale.operator.times import Schedule

_logger = logging.getLogger(__name__)

SHARE: Final = StatusShare(
    manager="kafscale-operator-etcd", types=frozenset({HEALTHY, SPACE_HEALTHY, AS_SPECIFIED})
)

AGAIN_SEC: Final = 30.0
"""Interval of passes: Kubernetes does not report etcd's health."""

SOON_SEC: Final = 5.0
"""The same while a step is in progress or etcd is unhealthy."""

_CALM: Final = ("Forming", "MemberJoining", "NotSettled")

Manifest = dict[str, Any]


class EtcdApi(PartApi, Lists, Applies, Protocol):
    """The part of `KubeClient` that is needed here."""

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Creates a new object, or raises `KubeRefusedError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A member's name, and its URLs for clients and for peers."""

    name: str
    client_url: str
    peer_url: str


def places(cluster: str, namespace: str, members: int) -> list[Place]:
    """Places of the members in Kubernetes."""
    return [
        Place(
            name=name,
            client_url=etcd_start.client_url(name, cluster, namespace),
            peer_url=etcd_start.peer_url(name, cluster, namespace),
        )
        for name in etcd_start.member_names(cluster, members)
    ]


Locate = Callable[[str, str, int], Sequence[Place]]
"""`places`; tests pass their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """State of one pass."""

    resource: Manifest
    cluster: ClusterSpec
    managed: ManagedEtcd
    start: EtcdStart
    where: Sequence[Place]
    keeper: EtcdMaintenance
    seen: EtcdSeen
    lost: frozenset[str]

    @property
    def key(self) -> tuple[str, str]:
        return self.cluster.namespace, self.cluster.name


class EtcdReconciler:
    """Reconciles every managed etcd. `now`: aware; `new_token`: a new one per call; `image`: default image."""

    def __init__(
        self,
        api: EtcdApi,
        image: str,
        metrics: EtcdMetrics,
        now: Callable[[], datetime],
        new_token: Callable[[], str],
        operator_namespace: str,
        locate: Locate = places,
        rules: DefragmentRules = DEFAULT_RULES,
    ) -> None:
        self._api = api
        self._image = image
        self._metrics = metrics
        self._now = now
        self._new_token = new_token
        self._operator_namespace = operator_namespace
        self._locate = locate
        self._rules = rules
        self._rounds: dict[tuple[str, str], EtcdRounds] = {}

    async def reconcile(self, namespace: str, name: str) -> float:
        """One pass; returns the seconds until the next. Raises `KubeError`."""
        found = await wanted_part(
            self._api, namespace, name, choose=lambda spec: spec.etcd.managed, share=SHARE, forget=self.forget
        )
        if found is None:
            return AGAIN_SEC
        resource, cluster, managed = found
        try:
            return await self._bring_forward(resource, cluster, managed)
        except SpecError as problem:
            await self._write_conditions(resource, [_refused("InvalidSpec", str(problem))])
        except KubeRefusedError as refusal:
            if refusal.reason not in ("Invalid", "Forbidden", "BadRequest"):
                raise
            await self._write_conditions(resource, [_refused(f"Api{refusal.reason}", refusal.message)])
        return SOON_SEC

    async def _bring_forward(self, resource: Manifest, cluster: ClusterSpec, managed: ManagedEtcd) -> float:
        schedule = Schedule.parse("etcd.managed.defragmentSchedule", managed.defragment_schedule)
        start = await self._kept_start(resource, cluster, managed)
        where = self._locate(cluster.name, cluster.namespace, start.members)
        with tempfile.TemporaryDirectory(prefix="kafscale-etcd-") as folder:
            tls = await self._kept_certificates(resource, cluster, start.members, Path(folder))
            keeper = EtcdMaintenance({each.name: each.client_url for each in where}, tls=tls)
            return await self._bring_members_forward(
                resource, cluster, managed, start, where, keeper, schedule
            )

    async def _bring_members_forward(
        self,
        resource: Manifest,
        cluster: ClusterSpec,
        managed: ManagedEtcd,
        start: EtcdStart,
        where: Sequence[Place],
        keeper: EtcdMaintenance,
        schedule: Schedule,
    ) -> float:
        seen = await keeper.look()
        pods = await self._api.list(POD, cluster.namespace, api_names.selector(cluster.name, names.ETCD))
        found = _Pass(
            resource=resource,
            cluster=cluster,
            managed=managed,
            start=start,
            where=where,
            keeper=keeper,
            seen=seen,
            lost=lost_data(pods),
        )
        self._metrics.looked(*found.key, seen, managed.quota_bytes)
        live = await self._api.find(STATEFUL_SET, cluster.namespace, names.etcd(cluster.name))
        plan = plan_objects(cluster, managed, self._image, start, live, seen, self._operator_namespace)
        for manifest in plan.objects:
            await apply_own(self._api, owned(manifest, resource), cluster, resource["metadata"]["uid"])
        await self._write_conditions(
            resource, etcd_conditions(start, seen, found.lost, managed.quota_bytes, plan.notes)
        )
        has_acted = await self._step_members(found) or await self._step_upkeep(found, schedule)
        is_well = unhealthy_reason(seen) is None and start.phase is StartPhase.FORMED
        return AGAIN_SEC if is_well and not has_acted else SOON_SEC

    async def _kept_start(self, resource: Manifest, cluster: ClusterSpec, managed: ManagedEtcd) -> EtcdStart:
        """Reads the cluster's start ConfigMap; creates it if there is none."""
        name = etcd_start.name_of(cluster.name)
        found = await self._api.find(CONFIG_MAP, cluster.namespace, name)
        if found is not None:
            return etcd_start.read_start(name, found.get("data", {}))
        start = EtcdStart(phase=StartPhase.FORMING, members=managed.members, token=self._new_token())
        await self._api.create(owned(etcd_start.start_map(cluster, start), resource))
        return start

    async def _kept_certificates(
        self, resource: Manifest, cluster: ClusterSpec, members: int, folder: Path
    ) -> TlsFiles:
        """Renews the certificates; writes a client's to the folder."""
        found = {}
        for name in secret_names(cluster.name):
            secret = await self._api.find(SECRET, cluster.namespace, name)
            if secret is not None:
                found[name] = secret_data(secret)
        for manifest in plan_secrets(cluster, members, found, self._now()):
            await apply_own(self._api, owned(manifest, resource), cluster, resource["metadata"]["uid"])
            found[manifest["metadata"]["name"]] = secret_data(manifest)
        held = found[names.etcd_clients(cluster.name)]
        for key in (CA, CERTIFICATE, KEY):
            (folder / key).write_bytes(held[key])
        return TlsFiles(ca=folder / CA, certificate=folder / CERTIFICATE, key=folder / KEY)

    async def _begin(self, found: _Pass, start: EtcdStart) -> None:
        """Replaces the start that was read in this pass; does nothing if it changed since."""
        manifest = etcd_start.start_map(found.cluster, start)
        name = manifest["metadata"]["name"]
        live = await self._api.find(CONFIG_MAP, found.cluster.namespace, name)
        if live is None or etcd_start.read_start(name, live.get("data", {})) != found.start:
            return
        manifest["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        await self._api.apply(owned(manifest, found.resource))
        message = f"etcd: from {found.start.phase} to {start.phase}, cluster {start.cluster_id or 'not formed yet'}."
        await self._api.event(found.resource, f"Etcd{start.phase}", message, warning=False)

    async def _step_members(self, found: _Pass) -> bool:
        """Does one step, if any is due; returns True if so."""
        step = members_plan.next_step(
            found.start,
            found.seen,
            peer_urls=tuple(each.peer_url for each in found.where),
            lost=found.lost,
            given_up=found.resource["metadata"].get("annotations", {}).get(GIVE_UP),
            new_token=self._new_token(),
        )
        if step is None:
            return False
        if isinstance(step, Begin):
            await self._begin(found, step.start)
            return True
        asked = found.seen.answering[0].name
        try:
            # Events first: an operator that lost leadership fails there, and the step does not follow.
            match step:
                case RemoveMember(member=gone):
                    message = f"{gone.name} ({gone.member_id:x}) lost its data and is taken off etcd's list."
                    await self._api.event(found.resource, "EtcdMemberTakenOff", message, warning=True)
                    await found.keeper.remove_member(asked, gone.member_id)
                case AddMember(peer_url=url):
                    message = f"A new member at {url} is put on etcd's list."
                    await self._api.event(found.resource, "EtcdMemberPutOn", message, warning=False)
                    await found.keeper.add_member(asked, url)
        except StoreIndeterminateError as doubt:
            _logger.warning("%s/%s: %s; the next pass looks again", *found.key, doubt)
        return True

    async def _step_upkeep(self, found: _Pass, schedule: Schedule) -> bool:
        """Does one step, if any is due; returns True if so."""
        now, seen = self._now(), found.seen
        rounds = self._rounds.setdefault(found.key, EtcdRounds())
        if seen.statuses and not seen.silent:
            rounds.looked(min(each.revision for each in seen.statuses), now)
        scheduled = schedule.newest(now)
        is_due = upkeep_plan.is_due(scheduled, now)
        if is_raised(seen, NO_SPACE):
            rounds.begin_alarm(now)
            if rounds.is_compacting(now):
                return True
        elif is_due:
            rounds.begin_scheduled(scheduled)
        step = upkeep_plan.next_step(
            seen,
            done=rounds.done,
            quota_bytes=found.managed.quota_bytes,
            is_due=is_due,
            settled_revision=rounds.settled_revision(),
            rules=self._rules,
        )
        if step is None:
            return False
        try:
            await self._carry_out(step, found, rounds)
        except StoreIndeterminateError as doubt:
            _logger.warning("%s/%s: %s; the next pass looks again", *found.key, doubt)
        return True

    async def _carry_out(self, step: upkeep_plan.Step, found: _Pass, rounds: EtcdRounds) -> None:
        keeper, asked = found.keeper, found.seen.answering
        match step:
            case Wait(why=why):
                _logger.info("%s/%s: etcd's upkeep waits: %s", *found.key, why)
            case Compact(revision=revision):
                await self._record(
                    found, "EtcdCompacting", f"History before revision {revision} is given up."
                )
                rounds.compacted(revision, self._now())
                await keeper.compact(asked[0].name, revision)
            case MoveLeader(leader=leader, successor=successor) if successor.status is not None:
                await self._record(found, "EtcdLeaderMoves", f"From {leader.name} to {successor.name}.")
                await keeper.move_leader(leader.name, successor.status.member_id)
            case Defragment(member=member) if member.status is not None:
                await self._record(found, "EtcdDefragmenting", f"{member.name} is defragmented.")
                rounds.defragmented(member.status.member_id)
                outcome = "in_doubt"
                try:
                    await keeper.defragment(member.name)
                    outcome = "succeeded"
                finally:
                    self._metrics.defragmented(*found.key, outcome)
            case Disarm(alarm=alarm):
                await self._record(
                    found, "EtcdAlarmDisarmed", f"There is room again: {alarm.kind} is taken back."
                )
                await keeper.disarm(asked[0].name, alarm)

    async def _record(self, found: _Pass, reason: str, message: str) -> None:
        """Called before the step: an operator that lost leadership fails here, and the step does not follow."""
        await self._api.event(found.resource, reason, message, warning=False)

    async def _write_conditions(self, resource: Manifest, wanted: Sequence[Condition]) -> None:
        """Applies the conditions if they differ, and records an event for each that turned."""
        await SHARE.write(self._api, resource, wanted, self._now(), fields={}, is_warning=_is_warning)

    def forget(self, namespace: str, name: str) -> None:
        """The cluster is gone, or has no managed etcd."""
        self._metrics.forget(namespace, name)
        self._rounds.pop((namespace, name), None)


def _is_warning(condition: Condition) -> bool:
    return condition.is_so is False and condition.reason not in _CALM


def _refused(reason: str, message: str) -> Condition:
    return Condition(type=AS_SPECIFIED, is_so=False, reason=reason, message=message)
