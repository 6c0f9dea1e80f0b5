"""The driver's hold of a topic: kept alive behind its back, given back, lost, and never silently."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.cluster.export_hold import ExportHold
from kafscale.cluster.exports import ExportHeldError, ExportLeaseLostError
from kafscale.errors import StartupError, StoreError
from kafscale.formats.export_records import ExportProgress
from kafscale.lake.export_lease import ExportLease, hold_export
from kafscale.metadata import keys
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import MetadataReader, Put
from kafscale.objects.local.store import LocalStore
from kafscale.objects.object_store import ListingReader
from kafscale.settings.broker import Settings, load_settings
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.waiting import PATIENCE_SEC, wait_until

PROGRESS = ExportProgress(
    topic="events",
    table="db.events",
    positions={0: 10},
    log_end_offsets={0: 12},
    rows=10,
    dead_letters=0,
    updated_ms=5,
)

_HOLDER = """
import sys
from kafscale.settings.broker import load_settings
from kafscale.lake.export_lease import hold_export
environment = dict(line.split("=", 1) for line in sys.argv[2:])
with hold_export(load_settings(environment), "events", "the other", int(sys.argv[1])) as lease:
    print(lease.epoch, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(params=["embedded", "etcd"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "embedded":
        return embedded(tmp_path)
    return clustered(request.getfixturevalue("etcd"), tmp_path)


def embedded(folder: Path) -> dict[str, str]:
    """A data folder as a broker leaves it."""
    asyncio.run(put_something(folder))
    return {"KAFSCALE_DATA_DIR": str(folder), "KAFSCALE_LOCAL_FSYNC": "false"}


async def put_something(folder: Path) -> None:
    store = await SqliteStore.open(folder / "metadata.db", fsync=False)
    await store.transact([], [Put(keys.CLUSTER, b"id")])
    await store.close()
    objects = LocalStore(folder / "objects", fsync=False)
    await objects.put("default/t/0/object", [b"bytes"])
    await objects.close()


def clustered(server: EtcdServer, folder: Path) -> dict[str, str]:
    """A prefix of its own in etcd; the bucket is never asked."""
    prefix = f"/tests/{folder.name}"
    return {
        "KAFSCALE_ETCD_ENDPOINTS": server.endpoint,
        "KAFSCALE_ETCD_PREFIX": prefix,
        "KAFSCALE_S3_BUCKET": "unused",
    }


@pytest.fixture
def settings(environment: dict[str, str]) -> Settings:
    return load_settings(environment)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread.name for thread in threading.enumerate() if "export-lease" in thread.name]


@contextlib.contextmanager
def other_holder(environment: dict[str, str], ttl_sec: int) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the topic until its input ends."""
    arguments = [f"{name}={value}" for name, value in environment.items()]
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(ttl_sec), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            yield process
        finally:
            process.kill()


def test_the_topic_is_held_in_the_block_past_the_lease_time(settings: Settings) -> None:
    began = time.monotonic()
    with hold_export(settings, "events", "host/1", 1) as lease:
        assert (lease.topic, lease.epoch) == ("events", 1)
        lease.record(PROGRESS)
        wait_until(lambda: time.monotonic() > began + 3, "the lease would have ended three times")
        lease.check()
        lease.confirm()
        with pytest.raises(ExportHeldError, match="host/1"), hold_export(settings, "events", "host/2", 1):
            pytest.fail("two at once")
    with pytest.raises(ExportLeaseLostError, match="it was released"):
        lease.check()
    with pytest.raises(ExportLeaseLostError, match="it was released"):
        lease.record(PROGRESS)
    with hold_export(settings, "events", "host/2", 1) as lease:
        assert lease.epoch == 2


def test_a_holder_that_is_killed_is_followed(environment: dict[str, str], settings: Settings) -> None:
    with other_holder(environment, ttl_sec=2) as process:
        with (
            pytest.raises(ExportHeldError, match="the other since"),
            hold_export(settings, "events", "me", 2),
        ):
            pytest.fail("two at once")
        process.kill()
        process.wait()
        with hold_export(settings, "events", "me", 2, wait_sec=PATIENCE_SEC) as lease:
            assert lease.epoch == 2
            lease.confirm()


def test_waiting_for_a_holder_to_end(environment: dict[str, str], settings: Settings) -> None:
    with other_holder(environment, ttl_sec=60) as process:
        began = time.monotonic()
        with pytest.raises(ExportHeldError), hold_export(settings, "events", "me", 60, wait_sec=0.7):
            pytest.fail("two at once")
        assert time.monotonic() > began + 0.7
        assert process.stdin is not None
        process.stdin.close()
        with hold_export(settings, "events", "me", 60, wait_sec=PATIENCE_SEC) as lease:
            assert lease.epoch == 2


def test_a_process_stopped_for_too_long_notices_at_once(etcd: EtcdServer, tmp_path: Path) -> None:
    """The stale one goes on by its own clock, and what it writes all the same is refused."""
    environment = clustered(etcd, tmp_path)
    stale = "import sys\nfrom kafscale.cluster.exports import ExportLeaseLostError\n" + _HOLDER.replace(
        "    sys.stdin.read()\n",
        "    sys.stdin.readline()\n"
        "    try:\n"
        "        lease.check()\n"
        "    except ExportLeaseLostError as problem:\n"
        "        print(problem, flush=True)\n",
    )
    arguments = [f"{name}={value}" for name, value in environment.items()]
    with subprocess.Popen(
        [sys.executable, "-c", stale, "2", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "1\n"
            process.send_signal(signal.SIGSTOP)
            with hold_export(load_settings(environment), "events", "me", 2, wait_sec=PATIENCE_SEC) as lease:
                process.send_signal(signal.SIGCONT)
                output, _ = process.communicate("go on\n", timeout=PATIENCE_SEC)
                assert "does not hold the topic any more" in output
                lease.record(PROGRESS)
        finally:
            process.kill()


def test_a_store_away_for_the_lease_time_ends_the_hold(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        settings = load_settings(clustered(server, tmp_path))
        with hold_export(settings, "events", "me", 2) as lease:
            server.pause()
            with pytest.raises(ExportLeaseLostError, match="could not be renewed for 2 s"):
                wait_until(lambda: lease.check(), "the lease is lost")
            server.resume()
            with pytest.raises(ExportLeaseLostError):
                lease.record(PROGRESS)
            with pytest.raises(ExportLeaseLostError):
                lease.confirm()


def test_the_stores_are_there_to_be_read(tmp_path: Path) -> None:
    settings = load_settings(embedded(tmp_path))

    async def read(metadata: MetadataReader, objects: ListingReader) -> tuple[bytes, bytes]:
        cluster = await metadata.get(keys.CLUSTER)
        assert cluster is not None
        return cluster.value, await objects.get("default/t/0/object")

    async def fail(metadata: MetadataReader, objects: ListingReader) -> None:
        raise LookupError("its own")

    with hold_export(settings, "events", "me") as lease:
        assert lease.call(read) == (b"id", b"bytes")
        with pytest.raises(LookupError, match="its own"):
            lease.call(fail)
        lease.check()


def test_what_cannot_be_opened(tmp_path: Path, etcd: EtcdServer) -> None:
    missing = tmp_path / "none"
    with (
        pytest.raises(StartupError, match="there is no metadata file"),
        hold_export(load_settings({"KAFSCALE_DATA_DIR": str(missing)}), "events", "me"),
    ):
        pytest.fail("held in a folder that is not there")
    assert not missing.exists()
    away = clustered(etcd, tmp_path) | {"KAFSCALE_ETCD_ENDPOINTS": "http://127.0.0.1:1"}
    with pytest.raises(StoreError), hold_export(load_settings(away), "events", "me"):
        pytest.fail("held in an etcd that is not there")


def test_an_error_of_the_block_is_raised_and_releases_the_topic(settings: Settings) -> None:
    with pytest.raises(ZeroDivisionError), hold_export(settings, "events", "me"):
        raise ZeroDivisionError
    with hold_export(settings, "events", "me") as lease:
        assert lease.epoch == 2


def test_a_defect_of_the_keeper_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: ExportHold) -> None:
        raise ArithmeticError("a mistake in the program")

    monkeypatch.setattr(ExportHold, "renew", broken)
    settings = load_settings(embedded(tmp_path))
    with pytest.raises(ArithmeticError, match="a mistake"), hold_export(settings, "events", "me", 1) as lease:
        with pytest.raises(
            ExportLeaseLostError, match=r"the thread that keeps it failed.*a mistake"
        ) as caught:
            wait_until(lambda: lease.check(), "the keeper has failed")
        assert isinstance(caught.value.__cause__, ArithmeticError)
        with pytest.raises(ExportLeaseLostError):
            lease.record(PROGRESS)


def test_a_defect_is_raised_while_the_topic_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver heard "it was released" in between, and a call could wait for a loop that had ended."""
    release, released, looked = ExportHold.release, threading.Event(), threading.Event()

    async def broken(_: ExportHold) -> None:
        raise ArithmeticError("a mistake in the program")

    async def slow(hold: ExportHold) -> None:
        await release(hold)
        released.set()
        await asyncio.to_thread(looked.wait)

    monkeypatch.setattr(ExportHold, "renew", broken)
    monkeypatch.setattr(ExportHold, "release", slow)
    settings = load_settings(embedded(tmp_path))
    with pytest.raises(ArithmeticError, match="a mistake"), hold_export(settings, "events", "me", 1) as lease:
        try:
            assert released.wait(PATIENCE_SEC)
            for call in (lease.check, lease.confirm, lambda: lease.record(PROGRESS)):
                with pytest.raises(ExportLeaseLostError, match=r"the thread that keeps it failed.*a mistake"):
                    call()
        finally:
            looked.set()


def test_a_call_in_progress_when_the_topic_is_given_back(tmp_path: Path) -> None:
    began, told = threading.Event(), list[str]()

    async def never_ends(metadata: MetadataReader, objects: ListingReader) -> None:
        began.set()
        await asyncio.Event().wait()

    def call(lease: ExportLease) -> None:
        try:
            lease.call(never_ends)
        except ExportLeaseLostError as lost:
            told.append(str(lost))

    with hold_export(load_settings(embedded(tmp_path)), "events", "me") as lease:
        caller = threading.Thread(target=call, args=(lease,))
        caller.start()
        assert began.wait(PATIENCE_SEC)
    caller.join(PATIENCE_SEC)
    assert not caller.is_alive()
    assert len(told) == 1 and "it was released" in told[0], told
    with pytest.raises(ExportLeaseLostError, match="it was released"):
        lease.record(PROGRESS)
