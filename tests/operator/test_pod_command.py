"""How long a broker in a pod waits for what Kubernetes knows, and what it does without."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafscale.operator.pods.command import PlaceFinder, PlaceMemory
from kafscale.operator.pods.place import Answer, Place, Questions, Unknown

LABEL = "topology.kubernetes.io/zone"
ZONED = {"metadata": {"name": "node-1", "labels": {LABEL: "eu-1b"}}}
BARE = {"metadata": {"name": "node-1", "labels": {}}}
BALANCED = {
    "spec": {"type": "LoadBalancer", "ports": [{"port": 9094}]},
    "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}},
}
REFUSED = Unknown("nodes is forbidden", is_answer=True)
AWAY = Unknown("the API server is away", is_answer=False)
OUTSIDE = {"KAFSCALE_EXTERNAL_HOST": "lb.example.com", "KAFSCALE_EXTERNAL_PORT": "9094"}


class Kubernetes:
    """Its answers by the second, and a clock that goes on when somebody sleeps."""

    def __init__(self, node: Mapping[float, Answer], service: Mapping[float, Answer] | None = None) -> None:
        self.now_sec = 1000.0
        self._nodes, self._services = node, service or {}
        self._began_sec = self.now_sec
        self.slept: list[float] = []

    async def node(self, name: str) -> Answer:
        assert name == "node-1"
        return self._latest(self._nodes)

    async def service(self, namespace: str, name: str) -> Answer:
        assert (namespace, name) == ("shop", "events-broker-0-external")
        return self._latest(self._services)

    def clock(self) -> float:
        return self.now_sec

    @property
    def waited_sec(self) -> float:
        return self.now_sec - self._began_sec

    async def sleep(self, delay_sec: float) -> None:
        assert self.waited_sec < 3600, "it waits without end"
        self.slept.append(delay_sec)
        self.now_sec += delay_sec

    def _latest(self, answers: Mapping[float, Answer]) -> Answer:
        return answers[max(second for second in answers if second <= self.waited_sec)]


def asked(**parts: Any) -> Questions:
    known: dict[str, Any] = {
        "namespace": "shop",
        "node": "node-1",
        "rack_label": LABEL,
        "service": None,
        "asks_host": True,
        "asks_port": True,
    }
    return Questions(**known | parts)


BOTH = asked(service="events-broker-0-external")


async def find(
    kubernetes: Kubernetes, folder: Path, questions: Questions, reasons: list[str] | None = None
) -> Place:
    told = ([] if reasons is None else reasons).append
    memory = PlaceMemory(folder / "place.json")
    return await PlaceFinder(questions, kubernetes, memory, told, kubernetes.clock, kubernetes.sleep).find()


async def test_what_is_known_is_not_waited_for(tmp_path: Path) -> None:
    kubernetes = Kubernetes({0: ZONED}, {0: BALANCED})
    assert await find(kubernetes, tmp_path, BOTH) == Place(variables={"KAFSCALE_RACK": "eu-1b"} | OUTSIDE)
    assert kubernetes.slept == []


async def test_an_address_is_waited_for_as_long_as_it_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafscale")
    missing = Unknown("service events-broker-0-external was refused: not found", is_answer=True)
    kubernetes = Kubernetes({0: ZONED}, {0: AWAY, 5: missing, 600: BALANCED})
    reasons: list[str] = []
    found = await find(kubernetes, tmp_path, BOTH, reasons)
    assert found.variables == {"KAFSCALE_RACK": "eu-1b"} | OUTSIDE
    assert 600 <= kubernetes.waited_sec <= 605
    assert max(kubernetes.slept) <= 5
    assert set(reasons) == {AWAY.reason, missing.reason}
    lines = [record for record in caplog.records if "waiting" in record.message]
    # A line for each reason, and the same again every half a minute.
    assert 15 <= len(lines) <= 25


@pytest.mark.parametrize("answer", [BARE, REFUSED], ids=["no label", "no right"])
async def test_a_zone_that_is_not_to_be_had_is_done_without(answer: Answer, tmp_path: Path) -> None:
    kubernetes = Kubernetes({0: answer}, {0: BALANCED})
    found = await find(kubernetes, tmp_path, BOTH)
    assert found.variables == OUTSIDE
    assert found.rack_missing is not None
    assert 30 <= kubernetes.waited_sec <= 36


async def test_a_label_that_comes_late_counts(tmp_path: Path) -> None:
    kubernetes = Kubernetes({0: BARE, 20: ZONED})
    assert await find(kubernetes, tmp_path, asked()) == Place(variables={"KAFSCALE_RACK": "eu-1b"})


async def test_a_zone_is_waited_for_while_the_api_is_silent(tmp_path: Path) -> None:
    """A broker without its zone would stay so until somebody restarts it."""
    kubernetes = Kubernetes({0: AWAY, 900: ZONED})
    assert await find(kubernetes, tmp_path, asked()) == Place(variables={"KAFSCALE_RACK": "eu-1b"})


async def test_restarted_container_continues_without_api_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await find(Kubernetes({0: ZONED}, {0: BALANCED}), tmp_path, BOTH)
    away = Kubernetes({0: AWAY}, {0: AWAY})
    assert await find(away, tmp_path, BOTH) == first
    assert 10 <= away.waited_sec <= 16
    assert "taken as it was found before" in caplog.text


async def test_what_was_found_before_is_no_answer_to_another_question(tmp_path: Path) -> None:
    await find(Kubernetes({0: ZONED}), tmp_path, asked())
    later = Kubernetes({0: AWAY, 100: ZONED | {"status": {}}}, {0: AWAY, 100: BALANCED})
    await find(later, tmp_path, BOTH)
    assert later.waited_sec >= 100


async def test_an_answer_goes_before_what_was_found_before(tmp_path: Path) -> None:
    """The address was taken away: the old one would lead clients astray."""
    await find(Kubernetes({0: ZONED}, {0: BALANCED}), tmp_path, BOTH)
    gone = BALANCED | {"status": {"loadBalancer": {}}}
    kubernetes = Kubernetes({0: ZONED}, {0: gone, 120: BALANCED})
    await find(kubernetes, tmp_path, BOTH)
    assert kubernetes.waited_sec >= 120


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"asked": null}'])
async def test_a_damaged_memory_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "place.json").write_text(text)
    kubernetes = Kubernetes({0: AWAY, 60: ZONED})
    assert await find(kubernetes, tmp_path, asked()) == Place(variables={"KAFSCALE_RACK": "eu-1b"})
    assert kubernetes.waited_sec >= 60


async def test_a_folder_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = await find(Kubernetes({0: ZONED}), tmp_path / "missing", asked())
    assert found.is_complete
    assert "cannot be kept" in caplog.text
