"""A broker that starts says at every moment what it is waiting for."""

import asyncio

import pytest

from kafscale.broker.parts import BasicParts
from kafscale.broker.process import EXIT_STOPPED, BrokerProcess
from kafscale.cluster.registration import Registration
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord
from kafscale.metadata.store import Delete
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings
from kafscale.settings.kinds import Address
from tests.groups.controlled_metadata import Metadata
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop

SETTINGS = Settings(broker_addr=Address("127.0.0.1", 0), shutdown_linger_ms=0, lease_ttl_sec=60)


async def starts(metadata: Metadata, held: str, call: str, step: str, detail: str = "") -> None:
    """With calls held back the start waits in that step, and is ready when they are released."""
    health, stop = Health(), asyncio.Event()
    process = BrokerProcess(BasicParts(SETTINGS, Metrics(), health, metadata, ControlledStore()))
    with metadata.hold(call, held) as hold:
        running = asyncio.create_task(process.run(stop))
        await hold.until_reached()
        await until(lambda: step in health.readiness_problems().get("broker", ""), step)
        reason = health.readiness_problems()["broker"]
        assert reason.startswith("the broker is starting, for ")
        assert f": {step} for " in reason
        assert detail in reason
    await until(lambda: not health.readiness_problems(), "the broker is ready")
    stop.set()
    assert await running == EXIT_STOPPED


@on_uvloop
@pytest.mark.parametrize(
    ("call", "held", "step"),
    [
        ("get", keys.CLUSTER, "reading which cluster the stores belong to"),
        ("get", keys.BROKERS, "registering broker id 0"),
        ("transact", keys.LEADERS, "claiming partitions"),
        ("transact", keys.COORDINATORS, "claiming group shards and loading them"),
        ("range", keys.GROUPS, "claiming group shards and loading them"),
    ],
)
async def test_start_that_waits_for_the_store_names_its_step(call: str, held: str, step: str) -> None:
    metadata = Metadata()
    async with in_process_broker(metadata=metadata) as before:
        await before.create_topic()
    detail = {"claiming partitions": "(leads 0)"}.get(step, "")
    await starts(metadata, held, call, step, detail)


@on_uvloop
async def test_start_that_waits_for_an_earlier_run_says_so() -> None:
    metadata, health, stop = Metadata(), Health(), asyncio.Event()
    await Registration(metadata, 60).register(BrokerRecord(broker_id=0, host="h", port=1))
    process = BrokerProcess(BasicParts(SETTINGS, Metrics(), health, metadata, ControlledStore()))
    running = asyncio.create_task(process.run(stop))
    told = "a broker with this id is registered, perhaps an earlier run of this one"
    await until(lambda: told in health.readiness_problems().get("broker", ""), "it says so")
    await metadata.transact([], [Delete(keys.broker(0))])
    await until(lambda: not health.readiness_problems(), "the broker is ready")
    stop.set()
    assert await running == EXIT_STOPPED


@on_uvloop
async def test_start_says_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        async with in_process_broker():
            pass
    [ready] = [record for record in caplog.records if record.message == "ready"]
    assert vars(ready)["start"].endswith(" s")
