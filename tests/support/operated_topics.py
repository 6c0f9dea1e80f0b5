"""Topics as Kubernetes has them beside the same topics as Kafka's clients see them."""

import base64
import functools
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
from aetcd import rpc
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kafscale.operator import api_names
from kafscale.operator.resource_reconciler import AGAIN_SEC
from tests.support.cluster import Cluster, ClusterStores
from tests.support.etcd_server import EtcdServer
from tests.support.kube_api import EVENT, SECRET, Kind, KubeApi, Manifest
from tests.support.operated_cluster import cluster_manifest
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

CLUSTER = Kind(api_names.API_VERSION, api_names.CLUSTER)
TOPIC = Kind(api_names.API_VERSION, api_names.TOPIC)

WATCH_SECONDS = 0.9 * AGAIN_SEC
"""Less than the time between periodic passes: what happens by then was noticed."""


class OperatedTopics:
    """The namespace of a test with one cluster, and one broker of it as a process of the test's."""

    def __init__(self, api: KubeApi, etcd: EtcdServer, s3: S3Server, folder: Path) -> None:
        self.api = api
        self._etcd = etcd
        self._s3 = s3
        self.prefix = f"/{folder.name}/{api.namespace}"
        stores = ClusterStores.of([etcd.endpoint], s3)
        self.brokers = Cluster(
            folder,
            stores,
            brokers=1,
            etcd_prefix=self.prefix,
            s3_namespace=api.namespace,
            auto_create_topics="false",
            flush_interval_ms=0,
        )

    @functools.cached_property
    def admin(self) -> AdminClient:
        """librdkafka's admin client. Its answers come only while it is referred to."""
        return AdminClient({"bootstrap.servers": self.brokers.bootstrap})

    def close(self) -> None:
        """The broker and the client."""
        self.brokers.close()
        self.__dict__.pop("admin", None)

    # --- Kubernetes

    def make_cluster(self, name: str = "c", **etcd: Any) -> None:
        """A KafscaleCluster for the stores, and the Secret with its access to the bucket."""
        self.put_secret("s3", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})
        objects = {
            "bucket": self._s3.bucket,
            "endpoint": self._s3.endpoint,
            "namespace": self.api.namespace,
            "credentialsSecret": "s3",
        }
        store = {"endpoints": [self._etcd.endpoint], "prefix": self.prefix, **etcd}
        self.api.create(cluster_manifest(name, s3=objects, etcd=store))

    def put_secret(self, name: str, texts: Mapping[str, str]) -> None:
        """New, or with other contents."""
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        self.api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})

    def make(self, name: str, **parts: Any) -> None:
        """A KafscaleTopic."""
        manifest: Manifest = {
            "apiVersion": api_names.API_VERSION,
            "kind": api_names.TOPIC,
            "metadata": {"name": name},
            "spec": {"clusterRef": {"name": "c"}, **parts},
        }
        self.api.create(manifest)

    def change(self, name: str, **parts: Any) -> None:
        """Parts of `spec` merged into it; None removes one."""
        self.api.patch(TOPIC, name, {"spec": parts})

    def delete(self, name: str) -> None:
        self.api.delete(TOPIC, name)

    def status(self, name: str) -> Manifest:
        """Empty before the operator has written it, and when the resource is gone."""
        found = self.api.find(TOPIC, name)
        return {} if found is None else found.get("status", {})

    def ready(self, name: str) -> tuple[str, str]:
        """Reason and message of the condition."""
        conditions = self.status(name).get("conditions", [])
        return (conditions[0]["reason"], conditions[0]["message"]) if conditions else ("", "")

    def wait_phase(self, name: str, phase: str, timeout_s: float = WATCH_SECONDS) -> Manifest:
        """Wait until it is in that phase as of the newest specification; its status."""

        def is_there() -> bool:
            found = self.api.get(TOPIC, name)
            status = found.get("status", {})
            seen = (status.get("phase"), status.get("observedGeneration"))
            return bool(seen == (phase, found["metadata"]["generation"]))

        self.wait(is_there, f"{name} is {phase}", name, timeout_s)
        return self.status(name)

    def wait_reason(self, name: str, reason: str, timeout_s: float = WATCH_SECONDS) -> str:
        """Wait until the condition has that reason; its message."""
        self.wait(lambda: self.ready(name)[0] == reason, f"{name} says {reason}", name, timeout_s)
        return self.ready(name)[1]

    def wait_gone(self, name: str, timeout_s: float = WATCH_SECONDS) -> None:
        """Wait until there is no such resource."""
        self.wait(lambda: self.api.find(TOPIC, name) is None, f"{name} is gone", name, timeout_s)

    def wait(
        self, condition: Callable[[], object], what: str, name: str, timeout_s: float = WATCH_SECONDS
    ) -> None:
        """`wait_until`, with the topic's status if it fails."""
        try:
            wait_until(condition, what, timeout_s)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}; the status is {self.status(name)}") from None

    def events(self, name: str) -> set[str]:
        """The reasons of all events of the resource."""
        about = [each for each in self.api.select(EVENT) if each["involvedObject"]["name"] == name]
        return {str(each["reason"]) for each in about}

    # --- the metadata store

    def keys(self) -> list[str]:
        """Every key of the cluster, without the prefix."""
        found = self._kv(
            lambda kv, first, end: kv.Range(rpc.RangeRequest(key=first, range_end=end, keys_only=True))
        )
        return [each.key.decode().removeprefix(f"{self.prefix}/") for each in found.kvs]

    def lose_metadata(self) -> None:
        """Replace the cluster's etcd by an empty one, as after a loss."""
        self._kv(lambda kv, first, end: kv.DeleteRange(rpc.DeleteRangeRequest(key=first, range_end=end)))

    def _kv(self, call: Callable[[Any, bytes, bytes], Any]) -> Any:
        first = f"{self.prefix}/".encode()
        with grpc.insecure_channel(self._etcd.endpoint.removeprefix("http://")) as channel:
            return call(rpc.KVStub(channel), first, first[:-1] + b"0")

    def recover(self, *arguments: str) -> None:
        """`kafscale recover` as the broker would be started. Asserts that it succeeds."""
        command = [str(Path(sys.executable).parent / "kafscale"), "recover", *arguments]
        environment = self.brokers.brokers[1].environment()
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SEC, check=False
        )
        assert done.returncode == 0, done.stderr

    # --- Kafka

    def kafka_topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        topics = self.admin.list_topics(timeout=PATIENCE_SEC).topics
        return {name: len(found.partitions) for name, found in topics.items()}

    def kafka_id(self, name: str) -> str:
        """The topic's id, as Kafka writes it: URL-safe, unlike librdkafka's."""
        described = self.admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_SEC)
        return str(described.topic_id).translate(str.maketrans("+/", "-_"))

    def kafka_configs(self, name: str) -> dict[str, str]:
        """The configs that were set on the topic."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = self.admin.describe_configs([resource])[resource].result(PATIENCE_SEC)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: entry.value for key, entry in entries.items() if entry.source == own}

    def kafka_make(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, config=dict(configs or {}))
        self.admin.create_topics([topic])[name].result(PATIENCE_SEC)

    def kafka_set(self, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SEC)

    def kafka_grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(PATIENCE_SEC)

    def kafka_send(self, name: str, value: str) -> None:
        """A record, acknowledged on return."""
        producer = Producer({"bootstrap.servers": self.brokers.bootstrap})
        producer.produce(name, value.encode(), partition=0)
        assert producer.flush(PATIENCE_SEC) == 0

    def kafka_delete(self, name: str) -> None:
        self.admin.delete_topics([name], operation_timeout=PATIENCE_SEC)[name].result(PATIENCE_SEC)


__all__ = ["CLUSTER", "SECRET", "TOPIC", "OperatedTopics"]
