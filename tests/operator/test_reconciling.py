"""Passes: woken, tried again after a failure, never two at once, and counted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.operator import reconciling
from kafscale.operator.errors import KubeUnreachableError, LeadershipLostError
from kafscale.operator.kube.kinds import CLUSTER, TOPIC
from kafscale.operator.operator_metrics import OperatorMetrics
from kafscale.operator.reconciling import Changes, Wakers, repeat_finish, repeat_passes, requested_state
from tests.support.waiting import PATIENCE_SEC

NEVER_SEC = 3600.0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> OperatorMetrics:
    return OperatorMetrics(registry)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTLE_SEC", "FIRST_RETRY_SEC", "FINISH_POLL_SEC"):
        monkeypatch.setattr(reconciling, name, 0.01)


def sample(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(name, {"part": "cluster"})


async def passes(
    reconcile: Callable[[str, str], Awaitable[float]],
    metrics: OperatorMetrics,
    woken: asyncio.Event,
    enough: asyncio.Event,
) -> None:
    """Make passes until `enough`."""
    task = asyncio.create_task(repeat_passes("cluster", "ns", "c", reconcile, woken, metrics))
    try:
        await asyncio.wait_for(enough.wait(), PATIENCE_SEC)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pass_is_made_at_once_and_when_woken(
    registry: CollectorRegistry, metrics: OperatorMetrics
) -> None:
    woken, enough, count = asyncio.Event(), asyncio.Event(), 0

    async def reconcile(namespace: str, name: str) -> float:
        nonlocal count
        assert (namespace, name) == ("ns", "c")
        count += 1
        if count == 1:
            woken.set()  # something happened meanwhile: it must not be forgotten
        else:
            enough.set()
        return NEVER_SEC

    await passes(reconcile, metrics, woken, enough)
    assert count == 2
    assert sample(registry, "kafscale_operator_pass_failures_total") is None


async def test_what_fails_is_tried_again(
    registry: CollectorRegistry, metrics: OperatorMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    enough, failures = (
        asyncio.Event(),
        [KubeUnreachableError("the API is away"), ValueError("nobody thought of it")],
    )

    async def reconcile(_namespace: str, _name: str) -> float:
        if failures:
            raise failures.pop(0)
        enough.set()
        return NEVER_SEC

    await passes(reconcile, metrics, asyncio.Event(), enough)
    expected, unexpected = caplog.records
    assert "cluster ns/c: the API is away; again in" in expected.getMessage()
    assert expected.exc_info is None
    assert unexpected.exc_info, "what nobody thought of comes with its traceback"
    assert sample(registry, "kafscale_operator_pass_failures_total") == 2


async def test_who_leads_no_more_makes_no_pass_more(metrics: OperatorMetrics) -> None:
    async def reconcile(_namespace: str, _name: str) -> float:
        raise LeadershipLostError("another leads")

    with pytest.raises(LeadershipLostError):
        await repeat_passes("cluster", "ns", "c", reconcile, asyncio.Event(), metrics)


async def test_a_resource_goes_only_when_all_is_done(
    registry: CollectorRegistry, metrics: OperatorMetrics
) -> None:
    answers: list[bool | Exception] = [False, KubeUnreachableError("away"), False, True]

    async def finish(_namespace: str, _name: str) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    await asyncio.wait_for(repeat_finish("cluster", "ns", "c", finish, metrics), PATIENCE_SEC)
    assert answers == []
    assert sample(registry, "kafscale_operator_passes_total") == 4


def test_every_part_that_looks_after_a_resource_is_woken() -> None:
    wakers = Wakers()
    with (
        wakers.waiting(CLUSTER, "ns", "c", "cluster") as first,
        wakers.waiting(CLUSTER, "ns", "c", "etcd") as second,
        wakers.waiting(CLUSTER, "ns", "d", "etcd") as other,
        wakers.waiting(TOPIC, "ns", "c", "topic") as topic,
    ):
        wakers.wake(CLUSTER, "ns", "c", "etcd")
        assert (first.is_set(), second.is_set(), other.is_set(), topic.is_set()) == (
            False,
            True,
            False,
            False,
        )
        wakers.wake(CLUSTER, "ns", "c")
        assert (first.is_set(), other.is_set(), topic.is_set()) == (True, False, False)
    wakers.wake(CLUSTER, "ns", "c")  # nobody waits any more


def resource(**changes: Any) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": "c", "uid": "u", "generation": 1, "resourceVersion": "1"}
    return {"metadata": metadata | changes, "spec": {}}


def test_a_part_that_writes_the_status_wakes_no_pass() -> None:
    """Found: the etcd's pass told how many bytes are in use, which woke it, and so on as long as anybody wrote."""
    changes = Changes(requested_state)
    assert changes.is_new(None, resource())
    told = {"conditions": [{"type": "EtcdSpaceHealthy", "status": "True", "message": "1 byte is in use"}]}
    assert not changes.is_new("MODIFIED", resource(resourceVersion="2") | {"status": told})


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"uid": "v"},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": ["kafscale.io/finalizer"]},
        {"annotations": {"kafscale.io/give-up-etcd": "1"}},
    ],
)
def test_a_request_in_an_annotation_wakes_a_pass(change: dict[str, Any]) -> None:
    changes = Changes(requested_state)
    changes.is_new("ADDED", resource())
    assert changes.is_new("MODIFIED", resource(**change))


def test_of_a_resource_that_is_gone_nothing_is_kept() -> None:
    changes = Changes(requested_state)
    changes.is_new("ADDED", resource())
    assert changes.is_new("DELETED", resource())
    assert changes.is_new("ADDED", resource())
