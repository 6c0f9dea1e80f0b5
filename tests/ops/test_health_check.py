"""A HEALTHCHECK's answer about a broker."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kafscale.ops.health import Health
from kafscale.ops.health_check import problem
from kafscale.ops.http import AdminServer
from kafscale.ops.metrics import Metrics
from kafscale.settings.kinds import Address
from tests.support.ports import free_port
from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def port(health: Health) -> Iterator[int]:
    server = AdminServer(Metrics(broker_id=0, version="0"), health)
    try:
        yield server.start("127.0.0.1", 0)
    finally:
        server.stop()


def run(address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafscale.ops.health_check"],
        env=clean_environment() | {"KAFSCALE_METRICS_ADDR": address},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )


def test_a_broker_that_lives_is_well_before_it_is_ready(health: Health, port: int) -> None:
    assert health.readiness_problems()
    assert problem(Address("0.0.0.0", port)) is None
    told = run(f":{port}")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_a_problem_is_printed(health: Health, port: int) -> None:
    health.add_liveness_check("event_loop", lambda: "the event loop is stuck")
    told = run(f"127.0.0.1:{port}")
    assert told.returncode == 1
    assert "the event loop is stuck" in told.stderr


def test_a_broker_that_does_not_listen_is_reported() -> None:
    port = free_port()
    told = problem(Address("127.0.0.1", port))
    assert told is not None and told.startswith(f"127.0.0.1:{port} does not answer: ")


def test_an_illegal_setting_is_reported() -> None:
    told = run("nowhere")
    assert told.returncode == 1
    assert "KAFSCALE_METRICS_ADDR='nowhere' is not legal" in told.stderr
