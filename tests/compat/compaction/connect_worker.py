"""A worker of Kafka Connect in distributed mode, with its three compacted topics, and its REST API."""

import http.client
import json
from pathlib import Path
from typing import Any, Final

from tests.compat.compaction.java_programs import java_with_more
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

_HOST: Final = "127.0.0.1"
_MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_SIGTERM_EXIT_CODE: Final = 143


class ConnectWorker(ServerProcess):
    """A worker. `topics`: the topics of its configs, offsets and states, by these names."""

    def __init__(self, folder: Path, bootstrap: str, group: str, topic_configs: dict[str, object]) -> None:
        super().__init__("connect", folder)
        self._port = free_port()
        self._file = folder / "worker.properties"
        self.topics = {kind: f"{group}-{kind}" for kind in ("config", "offset", "status")}
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        properties: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": f"http://{_HOST}:{self._port}",
            "key.converter": json_converter,
            "value.converter": json_converter,
            "value.converter.schemas.enable": "false",
            "offset.flush.interval.ms": 100,
            "plugin.discovery": "service_load",
            "scheduled.rebalance.max.delay.ms": 0,
        }
        for kind, topic in self.topics.items():
            properties |= {f"{kind}.storage.topic": topic, f"{kind}.storage.replication.factor": 1}
            if kind != "config":
                properties[f"{kind}.storage.partitions"] = 1
            properties |= {f"{kind}.storage.{name}": value for name, value in topic_configs.items()}
        self._file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def start(self) -> None:
        """Start it and wait until it answers with what it has read of its topics."""
        self.launch(java_with_more(_MAIN, str(self._file)), clean_environment())
        wait_until(self._is_ready, "the worker is ready")

    def clean_exit_code(self) -> int:
        return _SIGTERM_EXIT_CODE

    def _is_ready(self) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        try:
            return self._request("GET", "/connectors")[0] == http.client.OK
        except OSError:
            return False

    def configure(self, connector: str, config: dict[str, str]) -> None:
        """Create or change a connector. A worker that is busy with a rebalance refuses for a moment."""

        def is_done() -> bool:
            status, reply = self._request("PUT", f"/connectors/{connector}/config", config)
            assert status in (200, 201, 409, 500), (status, reply)
            return status in (200, 201)

        wait_until(is_done, f"{connector} is configured")

    def config(self, connector: str) -> dict[str, str]:
        """A connector's config."""
        status, reply = self._request("GET", f"/connectors/{connector}/config")
        assert status == http.client.OK, reply
        return dict(reply)

    def states(self, connector: str) -> list[str]:
        """The state of a connector and of each of its tasks; empty if it has none."""
        status, reply = self._request("GET", f"/connectors/{connector}/status")
        if status != http.client.OK:
            return []
        return [reply["connector"]["state"], *(task["state"] for task in reply["tasks"])]

    def wait_until_running(self, connector: str) -> None:
        """Wait until the connector and its one task run."""
        wait_until(lambda: self.states(connector) == ["RUNNING", "RUNNING"], f"{connector} is running")

    def restart_connector(self, connector: str) -> None:
        """Restart a connector with its task, which writes their states."""

        def is_done() -> bool:
            path = f"/connectors/{connector}/restart?includeTasks=true"
            return self._request("POST", path)[0] in (200, 202, 204)

        wait_until(is_done, f"{connector} is restarted")

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=PATIENCE_SEC)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            # Before it has started it answers with a page of its web server.
            is_json = response.getheader("Content-Type", "").startswith("application/json")
            return response.status, json.loads(text) if is_json and text else None
        finally:
            connection.close()
