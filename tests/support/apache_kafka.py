"""A real Apache Kafka broker from Maven (KRaft, one node): the peer that proves the tests' assertions."""

import socket
from pathlib import Path
from typing import ClassVar

from tests.compat.tools import KAFKA_LIBS
from tests.support.java import java_command, run_tool
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

HOST = "127.0.0.1"
CLUSTER_ID = "a2Fmc2NhbGUtdGVzdHMtMQ"  # any 16 bytes
SIGTERM_EXIT_CODE = 143  # the JVM runs its shutdown hooks and then exits by the signal


class ApacheKafka(ServerProcess):
    """The same surface as `KafscaleBroker` for the compatibility tests. `libs`: the folder of its jars."""

    libs: ClassVar[Path] = KAFKA_LIBS

    def __init__(self, folder: Path, name: str = "apache-kafka", **properties: object) -> None:
        super().__init__(name, folder)
        self.host = HOST
        self.port = free_port()
        self._controller_port = free_port()
        self._properties = properties
        self._formatted = False

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Start it and wait until it accepts connections."""
        properties = self.folder / "server.properties"
        if not self._formatted:
            properties.write_text(self._server_properties())
            run_tool(
                "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties),
                libs=self.libs,
            ).ok()  # fmt: skip
            self._formatted = True
        self.launch(java_command("kafka.Kafka", str(properties), libs=self.libs), clean_environment())
        wait_until(self._accepts, f"{self.name} accepts connections", timeout_s)

    def clean_exit_code(self) -> int:
        return SIGTERM_EXIT_CODE

    def _accepts(self) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def _server_properties(self) -> str:
        return "".join(f"{name}={value}\n" for name, value in self._server_values().items())

    def _server_values(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "logs",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "log.cleaner.dedupe.buffer.size": 2_097_152,  # a JVM of this size has no room for 128 MiB
            **{name.replace("_", "."): value for name, value in self._properties.items()},
        }
