"""Users as Kubernetes has them beside the same users as a broker lets them in."""

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from kafscale.operator import api_names
from kafscale.operator.manifests.names import KAFKA_PORT
from kafscale.operator.schema.security_schema import MUTUAL_TLS_PORT
from tests.support.etcd_server import EtcdServer
from tests.support.kube_api import SECRET, Kind, KubeApi, Manifest
from tests.support.operated_cluster import cluster_manifest
from tests.support.pod_like_broker import FOLDER, PodLikeBroker
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

CLUSTER = Kind(api_names.API_VERSION, api_names.CLUSTER)
USER = Kind(api_names.API_VERSION, api_names.USER)
CONFIG_MAP = Kind("v1", "ConfigMap")


LOOK_SEC = 1.0
"""How long a client asks for topics before its errors are looked at."""

_VOLUMES = {"tls": "c-broker-tls", "client-ca": "c-client-ca"}
_SETTINGS = "c-broker-settings"


class OperatedUsers:
    """The namespace of a test with the cluster `c`, and brokers of it as processes of the test's."""

    def __init__(
        self,
        api: KubeApi,
        etcd: EtcdServer,
        s3: S3Server,
        folder: Path,
        security: Mapping[str, Any] | None = None,
    ) -> None:
        self.api = api
        self._folder = folder
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        api.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}, "stringData": keys})
        objects = {
            "bucket": s3.bucket,
            "endpoint": s3.endpoint,
            "region": REGION,
            "namespace": api.namespace,
            "credentialsSecret": "s3",
        }
        store = {"endpoints": [etcd.endpoint], "prefix": f"/{folder.name}/{api.namespace}"}
        config = {"flushIntervalMs": 0, "autoCreateTopics": False}
        wanted = {"mutualTls": {}} if security is None else security
        api.create(cluster_manifest("c", s3=objects, etcd=store, config=config, security=wanted))
        self._brokers: list[PodLikeBroker] = []

    def start_brokers(self, count: int = 1) -> None:
        """With what the operator has made by then."""
        self.wait(lambda: self.api.find(CONFIG_MAP, _SETTINGS), "there are settings", "")
        for broker_id in range(count):
            broker = PodLikeBroker(self._folder / f"broker-{broker_id}", broker_id)
            self._brokers.append(broker)
            self._lay(broker)
            broker.start()

    def roll(self, listeners: str) -> None:
        """Restart one broker after the other, once the operator has settings with these listeners."""
        self.wait(lambda: self._settings()["KAFSCALE_LISTENERS"] == listeners, "there are settings", "")
        for broker in self._brokers:
            broker.stop()
            self._lay(broker)
            broker.start()

    def _settings(self) -> dict[str, str]:
        data: dict[str, str] = self.api.get(CONFIG_MAP, _SETTINGS)["data"]
        return data

    def _lay(self, broker: PodLikeBroker) -> None:
        settings = self._settings()
        files: dict[str, bytes] = {}
        for folder, name in _VOLUMES.items():
            if any(f"{FOLDER}{folder}/" in value for value in settings.values()):
                self.wait(lambda name=name: self.secret(name) is not None, f"there is a Secret {name}", "")  # type: ignore[misc]
                files |= {f"{folder}/{key}": content for key, content in (self.secret(name) or {}).items()}
        broker.lay(settings, files)

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()

    # --- Kubernetes

    def make(self, name: str, **parts: Any) -> None:
        """A KafscaleUser."""
        manifest: Manifest = {
            "apiVersion": api_names.API_VERSION,
            "kind": api_names.USER,
            "metadata": {"name": name},
            "spec": {"clusterRef": {"name": "c"}, **parts},
        }
        self.api.create(manifest)

    def rotate(self, name: str, value: str) -> None:
        self.api.patch(USER, name, {"metadata": {"annotations": {api_names.ROTATE: value}}})

    def secret(self, name: str) -> dict[str, bytes] | None:
        found = self.api.find(SECRET, name)
        if found is None:
            return None
        return {key: base64.b64decode(text) for key, text in found.get("data", {}).items()}

    def password(self, name: str) -> str:
        return (self.secret(name) or {})["password"].decode()

    def status(self, name: str) -> Manifest:
        found = self.api.find(USER, name)
        return {} if found is None else found.get("status", {})

    def wait_ready(self, name: str) -> None:
        def is_there() -> bool:
            found = self.api.get(USER, name)
            status = found.get("status", {})
            seen = (status.get("phase"), status.get("observedGeneration"))
            return bool(seen == ("Ready", found["metadata"]["generation"]))

        self.wait(is_there, f"{name} is Ready", name)

    def wait_gone(self, name: str) -> None:
        self.wait(lambda: self.api.find(USER, name) is None, f"{name} is gone", name)

    def wait(self, condition: Callable[[], object], what: str, name: str) -> None:
        try:
            wait_until(condition, what)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}; the status is {self.status(name)}") from None

    # --- Kafka

    def bootstrap(self, port: int = KAFKA_PORT) -> str:
        """The brokers' addresses for that port of their pods."""
        return ",".join(broker.address(port) for broker in self._brokers)

    def by_password(self, name: str, password: str, port: int = KAFKA_PORT) -> dict[str, Any]:
        """A client's configuration."""
        return {
            "bootstrap.servers": self.bootstrap(port),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": password,
            "ssl.ca.pem": (self.secret("c-ca") or {})["ca.crt"].decode(),
            "log_level": 0,
        }

    def by_certificate(self, name: str) -> dict[str, Any]:
        """The same at the listener for certificates."""
        secret = self.secret(name) or {}
        return {
            "bootstrap.servers": self.bootstrap(MUTUAL_TLS_PORT),
            "security.protocol": "SSL",
            "ssl.ca.pem": (self.secret("c-ca") or {})["ca.crt"].decode(),
            "ssl.certificate.pem": secret["user.crt"].decode(),
            "ssl.key.pem": secret["user.key"].decode(),
            "log_level": 0,
        }


def topics_of(client: Mapping[str, Any]) -> set[str] | None:
    """The topics that the client sees; None if the broker refuses its login."""
    refusals: list[KafkaError] = []

    def seen(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refusals.append(error)

    configuration: dict[str, Any] = {**client, "error_cb": seen}
    admin = AdminClient(configuration)
    topics: set[str] = set()

    def is_answered() -> bool:
        try:
            topics.update(admin.list_topics(timeout=LOOK_SEC).topics)
        except KafkaException:
            admin.poll(0)
            return bool(refusals)
        return True

    wait_until(is_answered, "the broker answers or refuses the login")
    return None if refusals else topics


def make_topic(client: Mapping[str, Any], name: str) -> None:
    admin = AdminClient(dict(client))  # its answers come only while it is referred to
    admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_SEC)


def produced(client: Mapping[str, Any], topic: str, timeout_sec: float = PATIENCE_SEC) -> str:
    """Sends a record; the name of the error, or nothing."""
    errors: list[str] = []

    def delivered(error: Any, _: object) -> None:
        errors.append("" if error is None else re.sub(r"^_?", "", error.name()))

    producer = Producer({**client, "message.timeout.ms": int(timeout_sec * 1000)})
    producer.produce(topic, b"x", on_delivery=delivered)
    producer.flush(PATIENCE_SEC)
    return errors[0] if errors else "no answer"
