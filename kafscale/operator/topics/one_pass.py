"""One pass over a KafscaleTopic that is not being deleted."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from kafscale.formats.features import LARGE_SEGMENTS_LEVEL, SEGMENT_FORMAT
from kafscale.metadata.model import TopicRecord, TopicState
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
from kafscale.operator.keyed_locks import KeyedLocks
from kafscale.operator.kube.kinds import TOPIC
from kafscale.operator.resource_status import Phase, Verdict
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.topics import owner as topic_owner
from kafscale.operator.topics.plan import TopicPlan, plan_topic
from kafscale.operator.topics.spec import TopicSpec, topic_spec
from kafscale.operator.topics.status import Known, Reason
from kafscale.operator.topics.work import TopicWork
from kafscale.protocol.error_codes import ErrorCode, KafkaError

_logger = logging.getLogger(__name__)

_PASSING: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.TOPIC_ALREADY_EXISTS,  # created between the read and the write
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class _NamedTwiceError(Exception):
    """Another resource owns the topic."""


class TopicPass:
    """One pass over one resource that is not being deleted."""

    def __init__(
        self,
        api: ResourceApi,
        clusters: Clusters,
        locks: KeyedLocks,
        now: Callable[[], datetime],
        resource: Manifest,
    ) -> None:
        self._api = api
        self._clusters = clusters
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
        except KafkaError as refusal:
            verdict = _refused(refusal)
        await write_verdict(self._api, TOPIC, self._resource, verdict, self._known, self._now())
        return verdict.phase

    async def _carry_out(self) -> Verdict:
        name, spec = self._resource["metadata"]["name"], self._resource["spec"]
        topic_spec(name, spec, LARGE_SEGMENTS_LEVEL)  # what no cluster accepts is reported at once
        async with live_cluster(self._api, self._clusters, self._resource) as live:
            wanted = topic_spec(name, spec, live.view.feature_level(SEGMENT_FORMAT))
            work = TopicWork(live)
            found = await work.find(wanted.name)
            if found is not None and found.state is not TopicState.ACTIVE:
                raise NotReadyError(
                    Reason.BEING_DELETED, f"topic {wanted.name} is being deleted; it is made again after that"
                )
            plan = plan_topic(wanted, self._known.configs, found)
            await self._intend(wanted, plan, found)
            if not plan.is_empty:
                applied = self._known.configs
                found = await work.carry_out(wanted, applied, plan)
                await self._record_work(wanted, plan)
        if found is None:
            raise AssertionError("an empty plan is for a topic that is there")
        self._known = Known.of_record(found, wanted.configs)
        notes = "".join(f"; {note}" for note in plan.notes)
        return Verdict(
            phase=Phase.READY, reason=Reason.AS_DECLARED, message=f"topic {wanted.name} is as declared{notes}"
        )

    async def _intend(self, wanted: TopicSpec, plan: TopicPlan, found: TopicRecord | None) -> None:
        """Records the intent in the status. Raises `NotReadyError`, `KubeError`; then the topic is not touched."""
        if self._known.name is None:
            namespace = self._resource["metadata"]["namespace"]
            async with self._locks.held(namespace, wanted.cluster, wanted.name):
                await self._check_owner(wanted)
                await self._write_intent(wanted, found)
        elif not plan.is_empty:
            await self._write_intent(wanted, found)

    async def _check_owner(self, wanted: TopicSpec) -> None:
        resources = await self._api.list(TOPIC, self._resource["metadata"]["namespace"])
        owner = topic_owner.owner(self._resource, resources)
        if owner is not self._resource:
            raise _NamedTwiceError(
                f"topic {wanted.name} of cluster {wanted.cluster} is that of the KafscaleTopic "
                f"{owner['metadata']['name']}: remove one of the two"
            )

    async def _write_intent(self, wanted: TopicSpec, found: TopicRecord | None) -> None:
        both = {**self._known.configs, **wanted.configs}
        intent = Known(name=wanted.name, configs=both) if found is None else Known.of_record(found, both)
        if intent != self._known:
            before = self._resource.get("status", {})
            status = resource_status.status_of_intent(before, intent)
            self._resource = await put_status(self._api, TOPIC, self._resource, status)

    async def _record_work(self, wanted: TopicSpec, plan: TopicPlan) -> None:
        """Records an event for the changes; a warning if they correct drift."""
        status = self._resource.get("status", {})
        generation = self._resource["metadata"]["generation"]
        was_so = status.get("phase") == Phase.READY and status.get("observedGeneration") == generation
        done = []
        if plan.create:
            done.append(f"created with {wanted.partition_count} partitions")
        elif plan.partition_count is not None:
            done.append(f"grown to {plan.partition_count} partitions")
        if not plan.create and plan.set_configs:
            done.append(
                "set " + ", ".join(f"{key}={value}" for key, value in sorted(plan.set_configs.items()))
            )
        if plan.reset_configs:
            done.append("reset " + ", ".join(sorted(plan.reset_configs)))
        reason = "TopicCreated" if plan.create else "TopicChanged"
        message = f"topic {wanted.name}: {'; '.join(done)}"
        if was_so:
            reason = "DriftCorrected"
            message += "; it had been deleted with its records" if plan.create else "; it had been changed"
        _logger.info("%s", message)
        await record_event(self._api, self._resource, reason, message, warning=was_so)


def _refused(refusal: KafkaError) -> Verdict:
    """A verdict on the cluster's refusal: Pending if it may pass, else Failed."""
    passes = refusal.code in _PASSING
    return Verdict(
        phase=Phase.PENDING if passes else Phase.FAILED,
        reason=Reason.NOT_DONE_YET if passes else Reason.REFUSED,
        message=str(refusal),
    )
