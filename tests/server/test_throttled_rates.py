"""The rate at which throttled connections are read, in virtual time: that of the quota, over each span of it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafscale.formats.quota_record import DEFAULT, QuotaEntity
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.ops.metrics import Metrics
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.produce import encode_produce_response
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.security.client_quotas import ClientQuotas
from kafscale.security.rates import Windows
from kafscale.server.connection_host import Requester
from kafscale.server.dispatcher import Dispatcher
from kafscale.server.listener import Listener
from kafscale.serving.request_throttle import RequestThrottle
from tests.support.driven_connection import DrivenConnection
from tests.support.virtual_time import run_virtually

WINDOWS = Windows(11, 1000)
BUDGET_BYTES = 64 * 2**20
RATE = 1_000_000
SECONDS = 66


class ProduceOnly:
    """In place of the dispatcher: takes every frame for a Produce request, and answers it at once."""

    def __init__(self, quotas: ClientQuotas, metrics: Metrics) -> None:
        self._quotas = quotas
        self._metrics = metrics
        self.taken: dict[str, list[tuple[float, int]]] = {}

    def dispatch(self, requester: Requester, frame: memoryview) -> None:
        client_id = bytes(frame[8:16]).decode()
        throttle = RequestThrottle(
            self._quotas,
            self._metrics,
            requester.mute,
            user="alice",
            client_id=client_id,
            api=ApiKey.PRODUCE,
            version=9,
        )
        throttle.produced(len(frame))
        self.taken.setdefault(client_id, []).append((asyncio.get_running_loop().time(), len(frame)))
        requester.open_slot(ApiKey.PRODUCE, throttle).send((encode_produce_response(1, 9, []),))


def frame(client_id: str, size_bytes: int) -> bytes:
    """API 0, version 9, correlation id, and in place of the rest the client's id."""
    body = b"\x00\x00\x00\x09\x00\x00\x00\x01" + client_id.ljust(8).encode() + bytes(size_bytes - 16)
    return len(body).to_bytes(4, "big") + body


def rates(client_ids: list[str], size_bytes: int, limits: dict[QuotaEntity, float]) -> dict[str, list[float]]:
    """The bytes a second of each client, for each span of all windows, while all send as fast as they are read."""

    async def run() -> dict[str, list[tuple[float, int]]]:
        metrics = Metrics()
        quotas = ClientQuotas(WINDOWS)
        for entity, rate in limits.items():
            quotas.set(entity, {QuotaKind.PRODUCE: rate})
        listener = Listener(
            SlabPool(BUDGET_BYTES),
            MemoryBudget(BUDGET_BYTES),
            metrics,
            frame_max_bytes=2**20,
            max_connections=100,
            max_idle_ms=600_000,
        )
        dispatcher = ProduceOnly(quotas, metrics)
        listener.dispatcher = cast(Dispatcher, dispatcher)
        broker: Any = SimpleNamespace(process=SimpleNamespace(basics=SimpleNamespace(listener=listener)))

        async def send(client_id: str) -> None:
            driven = DrivenConnection(broker)
            data = frame(client_id, size_bytes)
            while True:
                rest = driven.feed(data)
                while rest:
                    await driven.transport.resumed.wait()
                    rest = driven.feed(rest)
                await asyncio.sleep(0.01)  # The fastest that a client sends here: 100 requests a second.

        clients = [asyncio.create_task(send(client_id)) for client_id in client_ids]
        await asyncio.sleep(SECONDS)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        return dispatcher.taken

    span_sec = WINDOWS.span_ms / 1000
    return {
        client_id.strip(): [
            sum(size for at_sec, size in taken if start <= at_sec < start + span_sec) / span_sec
            for start in range(0, SECONDS, int(span_sec))
        ]
        for client_id, taken in run_virtually(run()).items()
    }


@pytest.mark.parametrize("size_bytes", [20_000, 200_000])
def test_producer_gets_its_quota_over_each_span(size_bytes: int) -> None:
    first, *others = rates(["app"], size_bytes, {QuotaEntity(user="alice"): RATE})["app"]
    assert first == pytest.approx(RATE, rel=0.2)
    assert others == [pytest.approx(RATE, rel=0.1)] * len(others)


def test_connections_of_one_user_share_its_quota() -> None:
    names = [f"app-{number}" for number in range(4)]
    found = rates(names, 50_000, {QuotaEntity(user="alice"): RATE})
    together = [sum(spans) for spans in zip(*(found[name] for name in names), strict=True)]
    assert together[1:] == [pytest.approx(RATE, rel=0.1)] * (len(together) - 1)


def test_throttled_client_does_not_slow_another() -> None:
    alone = rates(["free"], 1000, {})["free"]
    limits: dict[QuotaEntity, float] = {QuotaEntity(client_id="slow    "): 10_000}
    found = rates(["slow", "free"], 1000, limits)
    assert found["free"] == [pytest.approx(rate, rel=0.01) for rate in alone]
    assert found["slow"][1:] == [pytest.approx(10_000, rel=0.1)] * (len(found["slow"]) - 1)


def test_each_client_id_gets_the_default_quota() -> None:
    found = rates(["a", "b"], 20_000, {QuotaEntity(client_id=DEFAULT): RATE})
    for name in ("a", "b"):
        assert found[name][1:] == [pytest.approx(RATE, rel=0.1)] * (len(found[name]) - 1)
