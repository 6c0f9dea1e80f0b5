"""Apache Kafka from Maven, as it is measured: one node, or several that form a cluster."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import HOST, Broker, BrokerError
from bench.kafka_libs import java, kafka_libraries, kafka_share_libraries
from bench.tls import TlsListener
from tests.support.ports import free_port

# config/server.properties of the Kafka 4.1 release, values unchanged, with free ports and our log folder.
# Replicated topics are replicated to all nodes.
_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
{quorum}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{tls_listener}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{tls_listener}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={logs}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor={nodes}
share.coordinator.state.topic.replication.factor={nodes}
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor={nodes}
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
{tls_properties}"""
_KAFKA_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
# KAFKA_HEAP_OPTS of kafka-server-start.sh and KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh.
_KAFKA_HEAP = ("-Xmx1G", "-Xms1G")
_KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node's place in its cluster: its number, from 1, and all controllers' ports in order."""

    node_id: int
    controller_ports: Sequence[int]

    def quorum(self) -> str:
        """The property that names the controllers."""
        places = [f"{HOST}:{port}" for port in self.controller_ports]
        if len(places) == 1:
            return f"controller.quorum.bootstrap.servers={places[0]}"
        voters = ",".join(f"{number}@{place}" for number, place in enumerate(places, start=1))
        return f"controller.quorum.voters={voters}"


class ApacheKafka(Broker):
    """One Apache Kafka node (KRaft, combined broker and controller) with the settings of its release."""

    def __init__(
        self,
        work_dir: Path,
        node: _Node | None = None,
        *,
        with_tls: bool = False,
        libraries: Callable[[], Path] = kafka_libraries,
    ) -> None:
        super().__init__(work_dir, with_tls=with_tls)
        node = node or _Node(node_id=1, controller_ports=[free_port()])
        self._class_path = f"{libraries()}/*"
        self._properties = self.folder / "server.properties"
        text = _KAFKA_PROPERTIES.format(
            node_id=node.node_id,
            nodes=len(node.controller_ports),
            quorum=node.quorum(),
            host=HOST,
            port=self.port,
            controller_port=node.controller_ports[node.node_id - 1],
            logs=self.folder / "logs",
            tls_listener="" if self.tls is None else f",SSL://{HOST}:{self.tls.port}",
            tls_properties="" if self.tls is None else _tls_properties(self.tls),
        )
        self._properties.write_text(text)
        self._format_log_folder(stands_alone=len(node.controller_ports) == 1)

    def _format_log_folder(self, *, stands_alone: bool) -> None:
        storage_tool = ["kafka.tools.StorageTool", "format", *(["--standalone"] if stands_alone else [])]
        arguments = ["-t", _KAFKA_CLUSTER_ID, "-c", str(self._properties)]
        command = [java(), "-cp", self._class_path, *storage_tool, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"formatting Kafka's log folder failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        main = ("-cp", self._class_path, "kafka.Kafka", str(self._properties))
        return [java(), *_KAFKA_HEAP, *_KAFKA_JVM, *main]


def kafka_of_share_groups(work_dir: Path) -> ApacheKafka:
    """A node of the first release whose share groups are finished. A new cluster of it has `share.version` 1."""
    return ApacheKafka(work_dir, libraries=kafka_share_libraries)


def _tls_properties(tls: TlsListener) -> str:
    return f"ssl.keystore.type=PEM\nssl.keystore.location={tls.key_and_certificate}\n"


def kafka_nodes(work_dir: Path, count: int) -> list[ApacheKafka]:
    """The nodes of one cluster, each a broker and controller, not started."""
    ports = [free_port() for _ in range(count)]
    places = [_Node(node_id=number, controller_ports=ports) for number in range(1, count + 1)]
    return [ApacheKafka(work_dir, place) for place in places]
