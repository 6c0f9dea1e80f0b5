"""Kafka's own Java tools and clients: many calls in one JVM (ToolServer.java), or one tool per process."""

import base64
import contextlib
import hashlib
import json
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compat.tools import KAFKA_LIBS, ROOT
from tests.support import tool_cache
from tests.support.installing import TOOLS
from tests.support.waiting import PATIENCE_SEC

# A JVM for seconds, not for days: compile little, collect simply, stay small, believe the compiler of its classes.
UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
JVM_OPTIONS = (
    *UNVERIFIED,
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx384m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
JAVAC_OPTIONS = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-nowarn", "--release", "17")
CLASS_PATH = f"{KAFKA_LIBS}/*"
TOOL_SERVER = ROOT / "tests/compat/java/ToolServer.java"

TOPICS = "org.apache.kafka.tools.TopicCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


def java_command(main: str, *arguments: str, libs: Path = KAFKA_LIBS) -> list[str]:
    """The command line that runs a class (or a source file, which is compiled once) with Kafka's libraries."""
    class_path = f"{libs}/*"
    if main.endswith(".java"):
        class_path = f"{class_path}:{compiled(Path(main), libs=libs)}"
        main = Path(main).stem
    return ["java", *JVM_OPTIONS, "-cp", class_path, main, *arguments]


def compiled(*sources: Path, libs: Path = KAFKA_LIBS) -> Path:
    """The jar with the classes of these sources. Compiled once for all checkouts: it takes 1.3 CPU seconds."""
    jars = "".join(sorted(path.name for path in libs.glob("*.jar")))
    content = b"".join(path.read_bytes() for path in sources)
    stamp = hashlib.sha256(f"{JAVAC_OPTIONS}{jars}".encode() + content).hexdigest()[:16]
    folder = TOOLS / "java-classes"
    jar = folder / f"{stamp}.jar"
    if jar.exists() or tool_cache.take([jar.name], stamp, folder):
        return jar
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as new:
        command = ["javac", *JAVAC_OPTIONS, "-cp", f"{libs}/*", "-d", new, *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SEC, check=False)
        assert done.returncode == 0, done.stderr
        packed = Path(new) / jar.name
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(Path(new).rglob("*.class")):
                archive.write(path, path.relative_to(new))
        packed.replace(jar)  # another process may have been as quick
    tool_cache.keep([jar.name], stamp, folder)
    return jar


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool. `out` and `err` are its standard output and error."""

    exit_code: int
    out: str
    err: str

    def ok(self) -> str:
        """Its output. Raises AssertionError when it failed."""
        assert self.exit_code == 0, f"exit code {self.exit_code}\n{self.out}\n{self.err}"
        return self.out


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRecord:
    """One record to send, or one received (then `offset` is set). `timestamp`: Unix milliseconds."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    timestamp_type: str | None = None
    offset: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class JavaError(Exception):
    """A Java client threw. `kind` is the exception's class without its package."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass
class JavaServer:
    """A JVM that answers each line of JSON with one. Not for concurrent use. Started at the first call."""

    command: Sequence[str]
    error_log: Path
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def finish(self, timeout_s: float) -> None:
        """End its input, and wait until it has ended by itself. Raises AssertionError if it failed."""
        if self._process is not None:
            self._process.communicate(timeout=timeout_s)
            code, self._process = self._process.returncode, None
            assert code == 0, f"exit code {code}\n{self.error_log.read_text()[-4000:]}"

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """The reply. Raises `JavaError` for an exception there, AssertionError if none came in time."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(timeout_s, process.kill)
        watchdog.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            self.close()
            raise AssertionError(
                f"no reply within {timeout_s} s to {str(request)[:300]}\n{self.error_log.read_text()[-4000:]}"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise JavaError(reply["error"], reply["message"])
        return reply

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self.error_log.open("ab") as errors:
                self._process = subprocess.Popen(
                    list(self.command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    encoding="utf-8",
                )
        return self._process


class ToolServer(JavaServer):
    """One JVM that runs tools and clients one after the other."""

    def tool(
        self, main: str, *arguments: str, stdin: str | bytes = b"", timeout_s: float = PATIENCE_SEC
    ) -> ToolResult:
        """Run a tool's main method."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        reply = self.ask(
            {"do": "tool", "class": main, "args": list(arguments), "stdin": _encode(data)}, timeout_s
        )
        return ToolResult(exit_code=reply["exit"], out=reply["out"], err=reply["err"])

    def produce(
        self, topic: str, records: Sequence[JavaRecord], config: Mapping[str, object], pause_ms: int = 0
    ) -> list[dict[str, Any]]:
        """Send all, with a pause after each, and flush.

        Returns for each `partition`, `offset`, `timestamp`, or `error` and `message`.
        """
        rows = [
            {
                "partition": record.partition,
                "timestamp": record.timestamp,
                "key": _encode(record.key),
                "value": _encode(record.value),
                "headers": [[name, _encode(value)] for name, value in record.headers],
            }
            for record in records
        ]
        reply = self._client("produce", config, topic=topic, records=rows, pause_ms=pause_ms)
        results: list[dict[str, Any]] = reply["results"]
        return results

    def consume(
        self,
        topic: str,
        partition: int | None,
        count: int,
        config: Mapping[str, object],
        *,
        offset: int = 0,
        last_offset: int | None = None,
        timeout_s: float = PATIENCE_SEC,
    ) -> list[JavaRecord]:
        """`count` records from the offset on; fewer if the time is over, or one is at `last_offset` or above.

        Without a partition the consumer subscribes to the topic as a member of the group in `config`.
        """
        reply = self._client(
            "consume", config, topic=topic, partition=partition, offset=offset, count=count,
            last_offset=last_offset, timeout_ms=int(timeout_s * 1000),
        )  # fmt: skip
        return [
            JavaRecord(
                value=_decode(row["value"]),
                key=_decode(row["key"]),
                partition=partition,
                timestamp=row["timestamp"],
                timestamp_type=row["timestamp_type"],
                offset=row["offset"],
                headers=tuple((name, _decode(value)) for name, value in row["headers"]),
            )
            for row in reply["records"]
        ]

    def offsets(
        self, topic: str, partition: int, config: Mapping[str, object], timestamp: int | None = None
    ) -> dict[str, Any]:
        """`beginning`, `end` and, with a timestamp, `for_time` and `time_found`."""
        return self._client("offsets", config, topic=topic, partition=partition, timestamp=timestamp)

    def _client(self, what: str, config: Mapping[str, object], **request: object) -> dict[str, Any]:
        texts = {name: str(value) for name, value in config.items()}
        return self.ask({"do": what, "config": texts, **request}, 120.0)


@contextlib.contextmanager
def tool_server(folder: Path) -> Iterator[ToolServer]:
    """A tool server for the time of the block."""
    server = ToolServer(java_command(str(TOOL_SERVER)), folder / "tool-server.err")
    try:
        yield server
    finally:
        server.close()


def run_tool(
    main: str,
    *arguments: str,
    stdin: str | bytes = b"",
    timeout_s: float = PATIENCE_SEC,
    libs: Path = KAFKA_LIBS,
) -> ToolResult:
    """Run a tool as a process of its own, as its users do."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        java_command(main, *arguments, libs=libs),
        input=data,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    return ToolResult(exit_code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
