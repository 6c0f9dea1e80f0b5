"""`make cluster`: etcd, an S3 server and brokers on one machine, in one folder, until Ctrl-C.

Run it as `python -m scripts.local_cluster`. Started again, it continues with the data of the folder. With
`--stores-only` no broker starts: for commands that need that, as `kafscale recover` does.
"""

import argparse
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.etcd_install import etcd_binary, install_etcd
from tests.support.installing import CannotInstallError
from tests.support.s3_install import VERSITYGW, install_s3_server

HOST = "127.0.0.1"
BUCKET, BACKUP_BUCKET = "kafscale", "backups"
REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "kafscale", "kafscale-local"  # of a server that only this machine can reach
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
AGAIN_AFTER_S = 15.0  # before a crashed broker is restarted: long enough to see the others take over
POLL_S = 0.1
LOG_TAIL_BYTES = 64 * 1024
LINE_WIDTH = 400
LINES_TOLD = 3
ERROR_MARKS = ("error", "fatal", "panic")
SETTINGS_FILE = "settings.env"


class ClusterError(Exception):
    """The cluster cannot start or continue; the message is one line for the user."""


@dataclass(slots=True)
class Server:
    """One process of the cluster. It is ready once `ready_path` at `ready_port` answers 200."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    ready_port: int
    ready_path: str
    process: subprocess.Popen[bytes] | None = None
    ended_at: float | None = None

    def start(self) -> None:
        """Start it without waiting; this terminal's Ctrl-C does not reach it."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ended_at = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self.process is None else self.process.poll()

    def ready(self) -> bool:
        """Raises `ClusterError` if it has exited."""
        if self.exit_code is not None:
            raise ClusterError(self.why_it_ended())
        connection = http.client.HTTPConnection(HOST, self.ready_port, timeout=2)
        try:
            connection.request("GET", self.ready_path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def why_it_ended(self) -> str:
        """Its exit code, or the signal that killed it, and the last lines of its log."""
        code = self.exit_code or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return self.with_log(f"{self.name} {how}")

    def with_log(self, problem: str) -> str:
        """The problem, the path of the log, and the last errors in it, a line each."""
        told = last_errors(self.log)
        where = f"{problem}; its log is {self.log}"
        return "\n    ".join([f"{where} and ends with:", *told]) if told else where

    def stop(self) -> None:
        """Send SIGTERM without waiting."""
        if self.process is not None and self.exit_code is None:
            self.process.terminate()

    def wait(self) -> None:
        """Wait until it has exited; after `STOP_TIMEOUT_S` it is killed."""
        if self.process is None:
            return
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"{self.name} does not end; killing it", flush=True)
            self.process.kill()
            self.process.wait()


@dataclass(slots=True)
class LocalCluster:
    """The servers, in the order in which they start. Ports: two of each broker, then etcd's two, then S3's."""

    folder: Path
    first_port: int
    brokers: int
    stores: list[Server] = field(default_factory=list)
    serving: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.stores = [self._etcd(), self._s3()]
        self.serving = [self._broker(number) for number in range(1, self.brokers + 1)]
        self._write_settings()

    @property
    def ports(self) -> range:
        return range(self.first_port, self.first_port + 2 * self.brokers + 3)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self._broker_port(number)}" for number in range(1, self.brokers + 1))

    def start(self, *, is_serving: bool) -> None:
        """Start the stores, then all brokers if `is_serving`; wait until they are ready. Raises `ClusterError`."""
        for port in self.ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError:
                    raise ClusterError(f"port {port} is in use; choose others with --port") from None
        for servers in (self.stores, self.serving if is_serving else []):
            for server in servers:
                server.start()
            _wait_until_ready(servers)

    def look_after(self) -> None:
        """Restart brokers that have crashed. Raises `ClusterError` if a store has exited."""
        for server in self.stores:
            if server.exit_code is not None:
                raise ClusterError(server.why_it_ended())
        for server in self.serving:
            if server.process is None or server.exit_code is None:
                continue
            if server.ended_at is None:
                server.ended_at = time.monotonic()
                print(f"{server.name} ended ({server.exit_code}); the others take over", flush=True)
            elif time.monotonic() > server.ended_at + AGAIN_AFTER_S:
                server.start()
                print(f"{server.name} was started again", flush=True)

    def stop(self) -> None:
        """Stop the brokers first, all at once, so that they flush what they accepted to the stores."""
        for servers in (self.serving, self.stores):
            for server in servers:
                server.stop()
            for server in servers:
                server.wait()

    def _broker_port(self, number: int) -> int:
        return self.first_port + 2 * (number - 1)

    def _etcd(self) -> Server:
        client = f"http://{HOST}:{self.ports[-3]}"
        peer = f"http://{HOST}:{self.ports[-2]}"
        command = [
            str(etcd_binary()), "--name", "local", "--data-dir", str(self.folder / "etcd"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"local={peer}",
            "--auto-compaction-mode", "periodic", "--auto-compaction-retention", "5m",
        ]  # fmt: skip
        return self._server("etcd", command, {}, self.ports[-3], "/health")

    def _s3(self) -> Server:
        buckets = self.folder / "s3"
        for bucket in (BUCKET, BACKUP_BUCKET):  # a folder of the root is a bucket
            (buckets / bucket).mkdir(parents=True, exist_ok=True)
        command = [
            str(VERSITYGW), "--quiet", "--region", REGION, "--health", "/healthy",
            "--port", f"{HOST}:{self.ports[-1]}", "posix", str(buckets),
        ]  # fmt: skip
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        return self._server("s3", command, keys, self.ports[-1], "/healthy")

    def _broker(self, number: int) -> Server:
        port = self._broker_port(number)
        environment = {
            "KAFSCALE_BROKER_ID": str(number),
            "KAFSCALE_BROKER_ADDR": f"{HOST}:{port}",
            "KAFSCALE_METRICS_ADDR": f"{HOST}:{port + 1}",
            **self._store_settings(),
        }
        command = [str(Path(sys.executable).parent / "kafscale"), "serve"]
        return self._server(f"broker-{number}", command, environment, port + 1, "/readyz")

    def _store_settings(self) -> dict[str, str]:
        """The addresses of the stores, for brokers and commands."""
        return {
            "KAFSCALE_ETCD_ENDPOINTS": f"http://{HOST}:{self.ports[-3]}",
            "KAFSCALE_S3_BUCKET": BUCKET,
            "KAFSCALE_S3_REGION": REGION,
            "KAFSCALE_S3_ENDPOINT": f"http://{HOST}:{self.ports[-1]}",
            "KAFSCALE_S3_ACCESS_KEY": ACCESS_KEY,
            "KAFSCALE_S3_SECRET_KEY": SECRET_KEY,
            "KAFSCALE_BACKUP_BUCKET": BACKUP_BUCKET,
        }

    def _write_settings(self) -> None:
        """The settings for a shell: `. settings.env`."""
        lines = (f"export {name}={value}\n" for name, value in self._store_settings().items())
        (self.folder / SETTINGS_FILE).write_text("".join(lines))

    def _server(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], port: int, path: str
    ) -> Server:
        return Server(
            name=name,
            command=command,
            environment={**os.environ, **environment},
            log=self.folder / f"{name}.log",
            ready_port=port,
            ready_path=path,
        )


def last_errors(log: Path) -> list[str]:
    """The last lines of a log with an error, or its last lines if there is none; cut to a screen's width."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    lines = [line[:LINE_WIDTH] for line in lines if line.strip()]
    errors = [line for line in lines if any(mark in line.lower() for mark in ERROR_MARKS)]
    return (errors or lines)[-LINES_TOLD:]


def _wait_until_ready(servers: Sequence[Server]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    for server in servers:
        while not server.ready():
            if time.monotonic() > deadline:
                raise ClusterError(
                    server.with_log(f"{server.name} is not ready after {START_TIMEOUT_S:.0f} s")
                )
            time.sleep(POLL_S)


def _how_to_try_it(cluster: LocalCluster) -> str:
    victim = cluster.serving[0]
    pid = 0 if victim.process is None else victim.process.pid
    return f"""\
bootstrap.servers={cluster.bootstrap}

Brokers 1 to {cluster.brokers} serve. In another terminal:

    seq 1 1000 | kcat -P -b {cluster.bootstrap} -t numbers
    kcat -C -b {cluster.bootstrap} -t numbers -o beginning -e
    kcat -L -b {cluster.bootstrap}        who leads what
    kill -9 {pid}        ends broker 1; the others take over, and it is started again
    . {cluster.folder / SETTINGS_FILE}; .venv/bin/kafscale fsck

Data and logs: {cluster.folder}. Ctrl-C stops everything; the next start goes on with the data."""


def _without_brokers(cluster: LocalCluster) -> str:
    return f"""\
etcd and the S3 server run, and no broker. In another terminal:

    . {cluster.folder / SETTINGS_FILE}
    .venv/bin/kafscale backup list
    .venv/bin/kafscale recover --backup newest

Data and logs: {cluster.folder}. Ctrl-C stops everything; without --stores-only brokers start too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster until SIGINT or SIGTERM; then the exit code is 0."""
    parser = argparse.ArgumentParser(prog="local_cluster", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("kafscale-cluster"), help="for data and logs")
    parser.add_argument("--port", type=int, default=9092, help="the first of the ports")
    parser.add_argument("--brokers", type=int, default=3, choices=range(1, 10), metavar="1-9")
    parser.add_argument(
        "--stores-only", action="store_true", help="start no broker, but etcd and the S3 server"
    )
    options = parser.parse_args(arguments)
    asked_to_end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked_to_end.set())
    with contextlib.ExitStack() as stack:
        try:
            for what, install in (("etcd", install_etcd), ("versitygw (S3)", install_s3_server)):
                print(f"{what}: ", end="", flush=True)  # the first build takes a minute or two
                print(install(), flush=True)
            cluster = LocalCluster(options.folder.absolute(), options.port, options.brokers)
            stack.callback(cluster.stop)
            cluster.start(is_serving=not options.stores_only)
            print((_without_brokers if options.stores_only else _how_to_try_it)(cluster), flush=True)
            while not asked_to_end.wait(POLL_S):
                cluster.look_after()
            print("stopping", flush=True)
        except (ClusterError, CannotInstallError) as error:
            print(f"make cluster: {error}", file=sys.stderr, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
