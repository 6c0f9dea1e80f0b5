"""`make cluster`: one command, a cluster that works, stops on Ctrl-C and keeps its data."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Message

from scripts.local_cluster import last_errors
from tests.support import librdkafka
from tests.support.etcd_install import etcd_missing
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.s3_install import s3_server_missing
from tests.support.waiting import PATIENCE_SEC, wait_until

MISSING = etcd_missing() or s3_server_missing()
REPOSITORY = Path(__file__).resolve().parents[2]
PORTS = 9

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


class LocalCluster(ServerProcess):
    """The script in a process; `bootstrap` is what it says."""

    def __init__(self, folder: Path) -> None:
        super().__init__("local-cluster", folder)
        self.bootstrap = ""
        self.port = free_ports(PORTS)

    @property
    def data(self) -> Path:
        """The folder that it keeps everything in."""
        return self.folder / "data"

    def start(self, *options: str) -> None:
        told = len(self.log_text())
        command = [
            sys.executable, "-m", "scripts.local_cluster",
            "--folder", str(self.data), "--port", str(self.port), *options,
        ]  # fmt: skip
        quick = {"PYTHONPATH": str(REPOSITORY), "KAFSCALE_LEASE_TTL_SEC": "2"}
        self.launch(command, clean_environment() | quick)

        def told_how_to_go_on() -> bool:
            assert self.exit_code is None, self.log_tail()
            return "Ctrl-C stops everything" in self.log_text()[told:]

        wait_until(told_how_to_go_on, "it says how to go on")
        self.bootstrap = self.log_text()[told:].partition("bootstrap.servers=")[2].partition("\n")[0]

    def end(self) -> None:
        """Does as Ctrl-C."""
        self.send_signal(signal.SIGINT)
        assert self.wait_exit(40) == 0

    def kafscale(self, *arguments: str) -> str:
        """The command's output in a shell that read the settings file, as the script advises."""
        command = [f'. {self.data / "settings.env"}; exec {Path(sys.executable).parent / "kafscale"} "$@"']
        done = subprocess.run(
            ["sh", "-c", *command, "sh", *arguments],
            env=clean_environment(), cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_SEC,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def free_ports(count: int) -> int:
    """The first of so many ports in a row on which nothing listens."""

    def all_free() -> int | None:
        first = free_port()
        for port in range(first, first + count):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return None
        return first

    return int(wait_until(all_free, f"{count} free ports in a row") or 0)


def broker_pids(parent: int) -> list[int]:
    """The brokers that the script runs, in the order of their start (Linux)."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                state, ppid = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                serves = (folder / "cmdline").read_bytes().endswith(b"serve\0")
                if int(ppid) == parent and serves and state != "Z":
                    found.append(int(folder.name))
    return sorted(found)


def produce(cluster: LocalCluster, values: list[bytes]) -> None:
    client = librdkafka.producer(cluster, enable_idempotence=True, topic_metadata_refresh_interval_ms=500)
    for answer in librdkafka.send_all(client, "t", values):
        assert isinstance(answer, Message), str(answer)


def end_what_it_started(cluster: LocalCluster) -> None:
    if cluster.exit_code is None:
        cluster.send_signal(signal.SIGTERM)
        cluster.wait_exit(60)
    cluster.close()


def read(cluster: LocalCluster, count: int) -> list[bytes | None]:
    with librdkafka.assigned_consumer(cluster, "t") as consumer:
        return [message.value() for message in librdkafka.take(consumer, count)]


@pytest.mark.nightly
def test_it_serves_survives_a_kill_and_goes_on_with_its_data(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        cluster.start()
        assert len(cluster.bootstrap.split(",")) == 3
        produce(cluster, [b"one"])
        pids = broker_pids(cluster.pid)
        assert len(pids) == 3
        for pid in pids[:2]:  # whoever leads, one of the others takes over
            os.kill(pid, signal.SIGKILL)
        produce(cluster, [b"two"])
        assert "broker-1 ended (-9)" in cluster.log_text()
        cluster.end()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        cluster.start()
        produce(cluster, [b"three"])
        assert read(cluster, 3) == [b"one", b"two", b"three"]
        cluster.stop(40)
    finally:
        end_what_it_started(cluster)


@pytest.mark.nightly
def test_the_disaster_drill_as_the_page_says(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        cluster.start()
        produce(cluster, [b"one"])
        cluster.kafscale("backup", "create")
        assert "sound" in cluster.kafscale("backup", "verify", "newest")
        produce(cluster, [b"two"])
        cluster.end()
        shutil.rmtree(cluster.data / "etcd")
        cluster.start("--stores-only")
        assert broker_pids(cluster.pid) == []
        assert "Nothing was written" in cluster.kafscale("recover", "--backup", "newest")
        assert "Rebuilt 1 topics" in cluster.kafscale("recover", "--backup", "newest", "--apply")
        cluster.end()
        cluster.start()
        assert read(cluster, 2) == [b"one", b"two"]
        assert "No problems" in cluster.kafscale("fsck", "--verify")
        cluster.stop(40)
    finally:
        end_what_it_started(cluster)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    with socket.create_server(("127.0.0.1", cluster.port + 4)):
        try:
            with pytest.raises(AssertionError, match=f"make cluster: port {cluster.port + 4} is in use"):
                cluster.start()
            assert cluster.exit_code == 1
        finally:
            cluster.close()


def test_a_store_that_cannot_go_on_is_reported_with_its_error(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    wal = cluster.data / "etcd" / "member" / "wal"
    wal.mkdir(parents=True)
    (wal / "0000000000000000-0000000000000000.wal").write_bytes(b"not etcd's")
    try:
        with pytest.raises(AssertionError, match="make cluster: etcd ended"):
            cluster.start("--stores-only")
        told = cluster.log_text().partition("make cluster: ")[2].splitlines()
    finally:
        cluster.close()
    assert told[0].endswith("etcd.log and ends with:")
    assert any("wal" in line or "panic" in line for line in told[1:]), told


def test_the_last_errors_of_a_log_are_found_before_other_lines(tmp_path: Path) -> None:
    log = tmp_path / "s3.log"
    assert last_errors(log) == []
    log.write_text("started\nserving\n")
    assert last_errors(log) == ["started", "serving"]
    log.write_text("started\n" + "Error: disk full\n" + "stopping " + "x" * 10_000 + "\n\n")
    assert last_errors(log) == ["Error: disk full"]
