"""The brokers under test: each starts on free ports with its own data folder, and stops without a trace."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.kafka_libs import java, kafka_libraries
from bench.process import process_tree_cpu
from bench.wire import Client, WireError

_HOST = "127.0.0.1"
_START_TIMEOUT_SECONDS = 90.0
_STOP_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.002
ROOT = Path(__file__).resolve().parent.parent


class BrokerError(Exception):
    """A broker under test did not start or stop as it should; the text ends with its log."""


class Broker(ABC):
    """One broker process with its data folder. `start` may be called again after `stop`: the data stays."""

    def __init__(self, work_dir: Path) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="kafscale-bench-", dir=work_dir))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def speaks_kafka(self) -> bool:
        """Whether clients can use it; if not, it answers prebuilt Produce frames only."""
        return True

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"{_HOST}:{self.port}"

    def cpu(self) -> float:
        """CPU seconds the broker has used since it started."""
        return process_tree_cpu(self.pid).total

    def client(self, timeout_seconds: float = 60.0) -> Client:
        return Client(_HOST, self.port, timeout_seconds)

    def start(self, is_up: Callable[["Broker"], bool] | None = None) -> float:
        """Starts the process and returns the seconds from exec until `is_up` (default: `ready`) holds."""
        log = (self.folder / "broker.log").open("ab")
        check = is_up or type(self).ready
        begin = time.perf_counter()
        with log:
            self._process = subprocess.Popen(
                self.command(),
                env={**os.environ, **self.environment()},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        while not check(self):
            if self._process.poll() is not None:
                raise BrokerError(f"the broker ended with {self._process.returncode}:\n{self._log_end()}")
            if time.perf_counter() - begin > _START_TIMEOUT_SECONDS:
                self.kill()
                raise BrokerError(f"not ready after {_START_TIMEOUT_SECONDS:.0f} s:\n{self._log_end()}")
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - begin

    def stop(self) -> float:
        """Stops the process by SIGTERM and returns how many seconds it took to end."""
        if self._process is None:
            return 0.0
        begin = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None
        return time.perf_counter() - begin

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stops the process and deletes its data folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ready(self) -> bool:
        """Whether a client can use the broker: ApiVersions and Metadata are answered."""
        try:
            with self.client(timeout_seconds=2.0) as client:
                client.api_versions()
                client.partitions_with_leader("is-anyone-there")
        except (OSError, WireError):
            return False
        return True

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments."""

    def environment(self) -> Mapping[str, str]:
        """Environment variables to add."""
        return {}

    def _log_end(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")[-3000:]


class Kafscale(Broker):
    """This project's broker on its embedded default, with `settings` on top."""

    def __init__(self, work_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(work_dir)
        self._metrics_port = free_port()
        self._settings = dict(settings or {})

    @property
    def data_folder(self) -> Path:
        """Where its object store and its metadata are."""
        return self.folder / "data"

    def command(self) -> list[str]:
        return [str(Path(sys.executable).parent / "kafscale"), "serve"]

    def environment(self) -> Mapping[str, str]:
        return {
            "KAFSCALE_BROKER_ADDR": self.bootstrap,
            "KAFSCALE_METRICS_ADDR": f"{_HOST}:{self._metrics_port}",
            "KAFSCALE_DATA_DIR": str(self.data_folder),
            **self._settings,
        }

    def readyz(self) -> bool:
        """Whether the health endpoint calls the broker ready."""
        try:
            return self._http_get("/readyz")[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def metrics(self) -> str:
        """What the broker counts, in Prometheus' text form."""
        return self._http_get("/metrics")[1]

    def _http_get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(_HOST, self._metrics_port, timeout=2.0)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


# config/server.properties of the Kafka 4.1 release, values unchanged, with free ports and our log folder.
_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
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
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
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


class ApacheKafka(Broker):
    """One Apache Kafka node (KRaft, broker and controller in one) as its release ships it."""

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self._class_path = f"{kafka_libraries()}/*"
        self._properties = self.folder / "server.properties"
        text = _KAFKA_PROPERTIES.format(
            host=_HOST, port=self.port, controller_port=free_port(), logs=self.folder / "logs"
        )
        self._properties.write_text(text)
        storage_tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _KAFKA_CLUSTER_ID, "-c"]
        command = [java(), "-cp", self._class_path, *storage_tool, str(self._properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"formatting Kafka's log folder failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        main = ("-cp", self._class_path, "kafka.Kafka", str(self._properties))
        return [java(), *_KAFKA_HEAP, *_KAFKA_JVM, *main]


class NoOp(Broker):
    """The ceiling: the same event loop, reading frames and answering each Produce with a fixed reply."""

    @property
    def speaks_kafka(self) -> bool:
        return False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.noop", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(ROOT)}

    def ready(self) -> bool:
        try:
            self.client(timeout_seconds=2.0).__exit__(None, None, None)
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A column of the report: a broker with given settings."""

    name: str
    make: Callable[[Path], Broker] = field(repr=False)
    describes: str
    speaks_kafka: bool = True  # False: answers prebuilt Produce frames only, no client can use it


def _kafscale(settings: Mapping[str, str]) -> Callable[[Path], Broker]:
    return lambda work_dir: Kafscale(work_dir, settings)


KAFKA = "kafka"
PEERS = {
    peer.name: peer
    for peer in (
        Peer(name=KAFKA, make=ApacheKafka, describes="Apache Kafka from Maven, settings as shipped"),
        Peer(name="kafscale", make=_kafscale({}), describes="embedded default, nothing set"),
        Peer(
            name="kafscale-flush0",
            make=_kafscale({"KAFSCALE_FLUSH_INTERVAL_MS": "0"}),
            describes="KAFSCALE_FLUSH_INTERVAL_MS=0",
        ),
        Peer(
            name="kafscale-producer",
            make=_kafscale({"KAFSCALE_COMPRESSION_CODEC": "producer"}),
            describes="KAFSCALE_COMPRESSION_CODEC=producer: batches stay as they come",
        ),
        Peer(
            name="noop",
            make=NoOp,
            describes="no-op server on the same event loop: the ceiling",
            speaks_kafka=False,
        ),
    )
}


def free_port() -> int:
    """A TCP port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
