"""`kafscale pod` as a process, where no Kubernetes answers. tests/k8s/test_pod_place.py is where one does."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.pod_broker import PodBroker
from tests.support.ports import free_port
from tests.support.process import clean_environment
from tests.support.waiting import wait_until

RACK = {"RACK_LABEL": "topology.kubernetes.io/zone", "POD_NAMESPACE": "shop", "NODE_NAME": "node-1"}


@contextlib.contextmanager
def pod(folder: Path, variables: dict[str, str], **settings: object) -> Iterator[PodBroker]:
    broker = PodBroker(folder, f"https://127.0.0.1:{free_port()}", variables, **settings)
    try:
        yield broker
    finally:
        broker.close()


def test_waiting_pod_is_live_reports_reason_and_can_stop(tmp_path: Path) -> None:
    with pod(tmp_path, RACK) as broker:
        broker.launch_only()
        wait_until(broker.answers, "health is served")
        wait_until(lambda: "127.0.0.1" in broker.http_get("/readyz")[1], "it says for what it waits")
        status, body = broker.http_get("/readyz")
        assert status == 503
        reason = json.loads(body)["reasons"]["broker"]
        assert (
            reason.startswith("the Kubernetes API at 127.0.0.1 port ")
            and "did not return node node-1" in reason
        )
        assert not broker.data_folder.exists(), "the stores are opened before it is known where the broker is"
        assert broker.stop() < 8


def test_with_nothing_to_ask_it_is_serve(tmp_path: Path) -> None:
    with pod(tmp_path, {}) as broker:
        broker.start()
        assert broker.stop() < 15


def test_outside_of_a_pod_it_says_so(tmp_path: Path) -> None:
    with pod(tmp_path, RACK) as broker:
        environment = clean_environment() | RACK
        environment.pop("KUBERNETES_SERVICE_HOST", None)  # these tests may run in a pod themselves
        broker.launch(broker.command(), environment)
        assert broker.wait_exit(20) == 2
        assert "KUBERNETES_SERVICE_HOST is not set: this runs in a pod" in broker.log_tail()


def test_an_environment_that_does_not_say_enough_is_one_line(tmp_path: Path) -> None:
    with pod(tmp_path, {"RACK_LABEL": "zone", "POD_NAMESPACE": "shop"}) as broker:
        broker.launch_only()
        assert broker.wait_exit(20) == 2
        assert (
            broker.log_tail()
            .rstrip()
            .endswith("NODE_NAME must be set where RACK_LABEL is: Kubernetes is asked by that name")
        )
