"""A candidate and a Lease that is stored as the Kubernetes API stores it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafscale.operator.kube.client import KubeClient
from kafscale.operator.leading import driver as election_driver
from kafscale.operator.leading.driver import ElectionDriver
from tests.operator.fake_kubernetes import Answer, Call, refusal, serving
from tests.support.waiting import PATIENCE_SEC, wait_until_async


class Leases:
    """One lease; every write gives it a new version, and one that names another version is refused."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.is_away = False
        self._version = 0

    def respond(self, call: Call) -> Answer:
        if self.is_away:
            return 503, "away"
        if call.method == "GET":
            return refusal(404, "NotFound") if self.lease is None else (200, self.lease)
        if call.method == "POST" and self.lease is not None:
            return refusal(409, "AlreadyExists")
        if call.method == "PUT":
            assert self.lease is not None
            if call.body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return refusal(409, "Conflict")
        self.store(call.body)
        return 200, self.lease

    def store(self, lease: dict[str, Any]) -> None:
        self._version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self._version)}}

    @property
    def holder(self) -> str:
        return "" if self.lease is None else str(self.lease["spec"]["holderIdentity"])


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_driver, "RETRY_SEC", 0.02)


@asynccontextmanager
async def candidates(leases: Leases, *names: str) -> AsyncIterator[list[ElectionDriver]]:
    async with serving(leases.respond) as (access, _), KubeClient(access) as kube:
        found = [ElectionDriver(kube, "ns", "operator", name) for name in names]
        tasks = [asyncio.create_task(each.run()) for each in found]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_of_several_leads() -> None:
    leases = Leases()
    async with candidates(leases, "a", "b", "c") as found:
        await wait_until_async(lambda: _any_leads(found), "one leads")
        assert [each.leads() for each in found].count(True) == 1
        assert leases.lease is not None
        assert leases.lease["spec"]["leaseDurationSeconds"] == 15
        first = leases.lease["spec"]["acquireTime"]
        version = leases.lease["metadata"]["resourceVersion"]
        await wait_until_async(lambda: _renewed(leases, version), "it is renewed")
        assert leases.lease["spec"]["acquireTime"] == first


async def test_what_is_given_back_is_taken_at_once() -> None:
    leases = Leases()
    async with candidates(leases, "a") as (first,):
        await asyncio.wait_for(first.wait_until(True), PATIENCE_SEC)
    async with candidates(leases, "b") as (second,), serving(leases.respond) as (access, _):
        async with KubeClient(access) as kube:
            await _give_back(kube, leases)
        await asyncio.wait_for(second.wait_until(True), PATIENCE_SEC)
        assert leases.holder == "b"
        assert leases.lease is not None
        assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_a_leader_that_cannot_renew_leads_no_more_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.operator.leading.election.DEADLINE_SEC", 0.3)
    leases = Leases()
    async with candidates(leases, "a") as (only,):
        await asyncio.wait_for(only.wait_until(True), PATIENCE_SEC)
        leases.is_away = True
        await asyncio.wait_for(only.wait_until(False), PATIENCE_SEC)
        assert leases.holder == "a", "nobody wrote it"
        leases.is_away = False
        await asyncio.wait_for(only.wait_until(True), PATIENCE_SEC)


async def test_who_was_replaced_does_not_give_back_what_is_anothers() -> None:
    leases = Leases()
    async with candidates(leases, "a") as (first,):
        await asyncio.wait_for(first.wait_until(True), PATIENCE_SEC)
        assert leases.lease is not None
        leases.store({**leases.lease, "spec": {**leases.lease["spec"], "holderIdentity": "b"}})
        await asyncio.wait_for(first.wait_until(False), PATIENCE_SEC)
        await first.resign()
        assert leases.holder == "b"


async def _any_leads(found: list[ElectionDriver]) -> bool:
    return any(each.leads() for each in found)


async def _renewed(leases: Leases, version: str) -> bool:
    return leases.lease is not None and leases.lease["metadata"]["resourceVersion"] != version


async def _give_back(kube: KubeClient, leases: Leases) -> None:
    """As `a`, which has ended its rounds and looks once more."""
    driver = ElectionDriver(kube, "ns", "operator", "a")
    running = asyncio.create_task(driver.run())
    await asyncio.wait_for(driver.wait_until(True), PATIENCE_SEC)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await driver.resign()
