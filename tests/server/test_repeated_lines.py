"""Lines that clients can cause again and again: one of a kind and client a minute, and the rest counted."""

import logging
import struct

import pytest

from kafscale.ops.line_limit import INTERVAL_SEC, RepeatedLines
from kafscale.protocol.api_keys import ApiKey
from tests.support.in_process_broker import dispatcher_of, in_process_broker
from tests.support.on_uvloop import on_uvloop


class Clock:
    def __init__(self) -> None:
        self.now_sec = 1000.0

    def __call__(self) -> float:
        return self.now_sec


def test_a_line_is_written_once_an_interval_with_a_count() -> None:
    clock = Clock()
    lines = RepeatedLines(clock)
    kind = ("unsupported_api", "192.0.2.1")
    assert [lines.admit(kind) for _ in range(4)] == [0, None, None, None]
    assert lines.admit(("unsupported_api", "192.0.2.2")) == 0
    assert lines.admit(("malformed", "192.0.2.1")) == 0
    clock.now_sec += INTERVAL_SEC
    assert [lines.admit(kind) for _ in range(2)] == [3, None]


def test_what_is_remembered_of_many_clients_is_bounded() -> None:
    lines = RepeatedLines(Clock())
    for number in range(5000):
        assert lines.admit(("malformed", str(number))) == 0
    assert len(lines._kinds) == 1000
    assert lines.admit(("malformed", "4999")) is None


@on_uvloop
async def test_reconnects_with_an_unserved_version_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    frame = struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1)
    with caplog.at_level(logging.WARNING):
        async with in_process_broker() as broker:
            for _ in range(20):
                async with broker.connect() as client:
                    await client.send_bytes(frame)
                    assert await client.closed_by_peer()
    lines = [record for record in caplog.records if record.message == "closed a connection"]
    assert len(lines) == 1


@on_uvloop
async def test_a_defect_that_a_client_can_repeat_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("a defect")

    frame = struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, -1)
    async with in_process_broker() as broker:
        services = dispatcher_of(broker)._broker
        view = services.view
        object.__setattr__(services, "view", Broken())
        for _ in range(5):
            async with broker.connect() as client:
                await client.send_bytes(frame)
                assert await client.closed_by_peer()
        object.__setattr__(services, "view", view)
    assert len([record for record in caplog.records if record.message == "a request failed"]) == 1
