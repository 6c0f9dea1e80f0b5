"""The Java client."""

from pathlib import Path

from tests.compat.security.clients import Refused
from tests.support.client_security import java_config, write_tool_config
from tests.support.java import TOPICS, JavaError, JavaRecord, ToolServer
from tests.support.security_plan import MECHANISMS, Access


class Java:
    """Kafka's own client, in a JVM that many tests share. Its tokens come from the token endpoint."""

    name = "java"
    mechanisms: tuple[str, ...] = MECHANISMS

    def __init__(self, server: ToolServer, folder: Path) -> None:
        self._server = server
        self._config = folder / "client.properties"

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition, with kafka-topics.sh."""
        config = write_tool_config(access, self._config)
        self._server.tool(
            TOPICS, "--bootstrap-server", access.bootstrap, "--command-config", str(config),
            "--create", "--topic", topic, "--partitions", "1",
        ).ok()  # fmt: skip

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send the values, and give the first error."""
        records = [JavaRecord(value=value.encode(), partition=0) for value in values]
        config = java_config(access) | {"max.block.ms": "20000"}
        try:
            results = self._server.produce(topic, records, config)
        except JavaError as error:
            return error.kind
        return next((result["error"] for result in results if "error" in result), None)

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group."""
        config = java_config(access) | {
            "group.id": group, "auto.offset.reset": "earliest", "fetch.max.wait.ms": "100",
        }  # fmt: skip
        try:
            records = self._server.consume(topic, None, count, config)
        except JavaError as error:
            raise Refused(error.kind) from error
        return [record.value.decode() for record in records if record.value is not None]

    def refusal(self, access: Access) -> str | None:
        """The error of a first record."""
        return self.produce(access, "refused", ["x"])
