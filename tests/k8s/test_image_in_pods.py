"""From the chart to a consumer's record: the operator's and a broker's container, run out of their pods' manifests in
the image that the Dockerfile makes, with a real API server, etcd and S3 server."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kafscale.operator import api_names
from tests.support.dockerfile import Stage, parse
from tests.support.image_build import Image, why_not
from tests.support.kube_api import NODE, POD, SERVICE, Kind, KubeApi, Manifest
from tests.support.kube_control_plane import ControlPlane
from tests.support.kubelet import Kubelet
from tests.support.operated_cluster import OperatedCluster
from tests.support.operator_process import Operators
from tests.support.pod_container import PodContainer
from tests.support.ports import free_port
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server, s3_server
from tests.support.waiting import PATIENCE_SEC, wait_until

PROJECT = Path(__file__).resolve().parents[2]
ZONE_LABEL = "topology.kubernetes.io/zone"
TOPIC = Kind(api_names.API_VERSION, api_names.TOPIC)

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]


@pytest.fixture(scope="module")
def image(images: dict[str, Image]) -> tuple[Image, Stage]:
    return images[""], parse((PROJECT / "Dockerfile").read_text())[-1]


@pytest.fixture
def records(tmp_path: Path, api: KubeApi) -> Iterator[S3Server]:
    """The bucket, and the Secret with its keys."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    metadata = {"name": "bucket-keys"}
    api.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys})
    with s3_server(tmp_path) as server:
        yield server


def first_pod(api: KubeApi, component: str) -> Manifest:
    """One that runs, as the kubelet sees it."""
    labels = f"{api_names.COMPONENT}={component}"

    def found() -> list[Manifest]:
        return [pod for pod in api.select(POD, labels=labels) if pod["spec"].get("nodeName")]

    wait_until(found, f"there is a pod of the {component}")
    return found()[0]


def page(port: int, path: str) -> tuple[int, str]:
    """Status 0 while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SEC)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def cluster_parts(plane: ControlPlane, namespace: str, records: S3Server, port: int) -> dict[str, Any]:
    return {
        "brokers": {
            "replicas": 1,
            "rack": {"topologyKey": ZONE_LABEL},
            "external": {"type": "LoadBalancer", "port": port},
        },
        "s3": {
            "bucket": records.bucket,
            "endpoint": records.endpoint,
            "region": REGION,
            "pathStyle": True,
            "credentialsSecret": "bucket-keys",
        },
        "etcd": {"endpoints": [plane.etcd.endpoint], "prefix": f"/image/{namespace}"},
        "security": {"protocol": "PLAINTEXT"},
        "config": {"flushIntervalMs": 0, "autoCreateTopics": False},
    }


def topic(partitions: int) -> Manifest:
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": api_names.TOPIC,
        "metadata": {"name": "orders"},
        "spec": {"clusterRef": {"name": "c"}, "partitions": partitions, "retention": "24h"},
    }


async def test_operator_topic_accepts_record_of_external_client(
    plane: ControlPlane,
    api: KubeApi,
    kubelet: Kubelet,
    installed: Operators,
    image: tuple[Image, Stage],
    records: S3Server,
    tmp_path: Path,
) -> None:
    api.apply(installed.deployment)
    pages, outside, health = free_port(), free_port(), free_port()
    operator = PodContainer(
        plane,
        api,
        first_pod(api, "operator"),
        image,
        tmp_path,
        {"KAFSCALE_OPERATOR_METRICS_ADDR": f":{pages}"},
    )
    containers = [operator]
    try:
        operator.start()
        cluster = OperatedCluster(api)
        cluster.make(**cluster_parts(plane, api.namespace, records, outside))
        pod = first_pod(api, "broker")
        here = {
            "KAFSCALE_LISTENERS": f"PLAINTEXT://127.0.0.1:{free_port()},EXTERNAL://:{outside}",
            "KAFSCALE_METRICS_ADDR": f"127.0.0.1:{health}",
        }
        broker = PodContainer(plane, api, pod, image, tmp_path, here)
        containers.append(broker)
        broker.start()
        wait_until(lambda: "load balancer yet" in page(health, "/readyz")[1], "it waits for its address")
        address = {"status": {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}}
        api.patch(SERVICE, "c-broker-0-external", address, subresource="status")
        wait_until(lambda: page(health, "/readyz")[0] == 200, f"it serves\n{broker.log_tail()}")

        api.create(topic(3))
        bootstrap = f"127.0.0.1:{outside}"
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            wait_until(
                lambda: api.get(TOPIC, "orders").get("status", {}).get("phase") == "Ready", "a topic", 60
            )
            assert await producer.partitions_for("orders") == {0, 1, 2}
            for partition in range(3):
                await producer.send_and_wait("orders", b"%d" % partition, partition=partition)
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            values = {(await consumer.getone()).value for _ in range(3)}
        assert values == {b"0", b"1", b"2"}
        zone = api.get(NODE, pod["spec"]["nodeName"])["metadata"]["labels"][ZONE_LABEL]
        assert f"KAFSCALE_RACK={zone}" in broker.log_path.read_text()
        for container in reversed(containers):
            assert "Read-only file system" not in container.log_path.read_text()
            container.stop()
    finally:
        for container in containers:
            container.close()
