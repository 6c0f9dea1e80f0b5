"""An export's life under the operator: a real API server takes its CronJob and Deployment, by the chart's rights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafscale.operator import api_names
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.kube_api import Kind, KubeApi, Manifest
from tests.support.kube_exports import SPEC
from tests.support.operated_topics import WATCH_SECONDS, OperatedTopics
from tests.support.operator_process import OperatorProcess
from tests.support.s3_server import S3Server, s3_server
from tests.support.waiting import wait_until

EXPORT = Kind(api_names.API_VERSION, api_names.EXPORT)
CRON_JOB = Kind("batch/v1", "CronJob")
DEPLOYMENT = Kind("apps/v1", "Deployment")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def running(
    api: KubeApi, operator: OperatorProcess, etcd: EtcdServer, s3: S3Server, tmp_path: Path
) -> Iterator[OperatedTopics]:
    """With a cluster, its broker and the operator."""
    found = OperatedTopics(api, etcd, s3, tmp_path)
    try:
        found.make_cluster()
        found.brokers.start()
        yield found
    finally:
        found.close()


def make(api: KubeApi, **parts: Any) -> None:
    spec = {key: value for key, value in {**SPEC, **parts}.items() if value is not None}
    api.create(
        {
            "apiVersion": api_names.API_VERSION,
            "kind": api_names.EXPORT,
            "metadata": {"name": "e"},
            "spec": spec,
        }
    )


def reason(api: KubeApi) -> str:
    """Of the condition; empty before there is one."""
    conditions = api.get(EXPORT, "e").get("status", {}).get("conditions", [])
    return str(conditions[0]["reason"]) if conditions else ""


def wait_reason(api: KubeApi, wanted: str) -> Manifest:
    wait_until(lambda: reason(api) == wanted, f"the export says {wanted}", WATCH_SECONDS)
    status: Manifest = api.get(EXPORT, "e")["status"]
    return status


def test_an_export_from_its_schedule_to_its_end(running: OperatedTopics) -> None:
    api = running.api
    running.make("orders", config={"kafscale.iceberg.enable": True})
    running.wait_phase("orders", "Ready")
    make(api, topics={"byConfig": True})
    status = wait_reason(api, "Scheduled")
    assert status["workload"] == "CronJob/e-export"
    assert [one["topic"] for one in status["topics"]] == ["orders"]
    assert api.get(CRON_JOB, "e-export")["spec"]["concurrencyPolicy"] == "Forbid"
    api.patch(EXPORT, "e", {"spec": {"schedule": None, "continuous": {}}})
    wait_until(lambda: api.find(DEPLOYMENT, "e-export") is not None, "there is a Deployment", WATCH_SECONDS)
    wait_until(lambda: api.find(CRON_JOB, "e-export") is None, "the CronJob is gone", WATCH_SECONDS)
    api.patch(EXPORT, "e", {"spec": {"suspend": True}})
    wait_reason(api, "Suspended")
    assert api.get(DEPLOYMENT, "e-export")["spec"]["replicas"] == 0
    api.delete(EXPORT, "e")
    wait_until(lambda: api.find(EXPORT, "e") is None, "the export is gone", WATCH_SECONDS)


def test_what_cannot_be_is_said(running: OperatedTopics) -> None:
    make(running.api, args=["--table=x"])
    wait_reason(running.api, "InvalidSpec")
    assert running.api.find(CRON_JOB, "e-export") is None
