"""A broker whose journals lie in a bucket of their own: what goes where, and what is refused without it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import S3Server, s3_server
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_SEC, wait_until

MISSING = s3_server_missing()
TOPIC = "orders"
JOURNALS = "journals--use1-az4--x-s3"
RECORDS = 20
REFUSED_TO_START = 1

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    """With two buckets, which are folders of its root."""
    with s3_server(tmp_path / "s3") as server:
        (server.bucket_folder.parent / JOURNALS).mkdir()
        yield server


@pytest.fixture
def broker(server: S3Server, tmp_path: Path) -> Iterator[KafscaleBroker]:
    settings = {name.removeprefix("KAFSCALE_").lower(): value for name, value in server.settings.items()}
    broker = KafscaleBroker(
        tmp_path, journal_bucket=JOURNALS, journal_single_zone="accept", lease_ttl_sec=2, **settings
    )
    try:
        yield broker
    finally:
        broker.close()


def entries(server: S3Server) -> list[str]:
    """The entries of the journal bucket, by key."""
    folder = server.bucket_folder.parent / JOURNALS
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.entry"))


def entries_elsewhere(server: S3Server) -> list[str]:
    return [key for key in server.stored_files() if key.endswith(".entry")]


def produce(broker: KafscaleBroker, first: int) -> None:
    with wire.connect(broker) as connection:
        for offset in range(first, first + RECORDS):
            answer = wire.produce(connection, TOPIC, 0, wire.batch([b"value %d" % offset]))
            assert (answer.error_code, answer.base_offset) == (0, offset)


def values(broker: KafscaleBroker) -> list[bytes | None]:
    """The topic's values, from its beginning."""
    with wire.connect(broker) as connection:
        return [value for _, value in wire.read_all(connection, TOPIC, 0)]


def expected(count: int) -> list[bytes | None]:
    return [b"value %d" % number for number in range(count)]


def recover(broker: KafscaleBroker) -> "subprocess.CompletedProcess[str]":
    """`kafscale recover --apply` with the broker's settings."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "kafscale"), "recover", "--apply"],
        env=broker.environment(),
        cwd=broker.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )


def refused_start(broker: KafscaleBroker) -> str:
    broker.launch_only()
    assert broker.wait_exit(30) == REFUSED_TO_START
    return broker.log_tail()


def test_entries_lie_in_the_journal_bucket_alone(server: S3Server, broker: KafscaleBroker) -> None:
    broker.start()
    create_topic(broker, TOPIC)
    produce(broker, 0)
    assert entries(server)
    assert all("/journals/x-" in key for key in entries(server))
    assert entries_elsewhere(server) == []
    broker.kill9()
    broker.start()
    assert values(broker) == expected(RECORDS)
    broker.settings["seal_interval_ms"], broker.settings["seal_max_age_ms"] = 100, 1000
    broker.restart()
    produce(broker, RECORDS)
    wait_until(
        lambda: any(key.endswith(".kfs") for key in server.stored_files()), "segments in the usual bucket"
    )
    assert values(broker) == expected(2 * RECORDS)
    broker.stop()
    assert not list((server.bucket_folder.parent / JOURNALS).rglob("*.kfs"))


def test_nothing_starts_without_the_journal_bucket(server: S3Server, broker: KafscaleBroker) -> None:
    broker.start()
    create_topic(broker, TOPIC)
    produce(broker, 0)
    broker.kill9()
    named = broker.settings.pop("journal_bucket"), broker.settings.pop("journal_single_zone")
    assert f"lie in the bucket {JOURNALS}, and KAFSCALE_JOURNAL_BUCKET is not set" in refused_start(broker)
    for path in broker.data_folder.glob("metadata.db*"):
        path.unlink()
    refused = recover(broker)
    assert refused.returncode == REFUSED_TO_START
    assert f"lie in the bucket {JOURNALS}, and KAFSCALE_JOURNAL_BUCKET is not set" in refused.stderr
    broker.settings["journal_bucket"], broker.settings["journal_single_zone"] = named
    done = recover(broker)
    assert done.returncode == 0, done.stderr
    broker.start()
    assert values(broker) == expected(RECORDS)
    broker.stop()


def test_single_zone_is_refused_at_the_start(broker: KafscaleBroker) -> None:
    del broker.settings["journal_single_zone"]
    broker.launch_only()
    assert broker.wait_exit(30) != 0
    assert "acknowledged records that are not sealed yet" in broker.log_tail()
    assert "KAFSCALE_JOURNAL_SINGLE_ZONE=accept" in broker.log_tail()


def test_missing_journal_bucket_is_named_at_the_start(server: S3Server, broker: KafscaleBroker) -> None:
    (server.bucket_folder.parent / JOURNALS).rmdir()
    said = refused_start(broker)
    assert "NoSuchBucket" in said
    assert "KAFSCALE_JOURNAL_BUCKET" in said


def test_journals_move_in_and_out_while_a_broker_goes_on(server: S3Server, broker: KafscaleBroker) -> None:
    named = broker.settings.pop("journal_bucket"), broker.settings.pop("journal_single_zone")
    broker.start()
    create_topic(broker, TOPIC)
    produce(broker, 0)
    broker.kill9()
    before = entries_elsewhere(server)
    assert before
    broker.settings["journal_bucket"], broker.settings["journal_single_zone"] = named
    broker.start()
    produce(broker, RECORDS)
    inside = entries(server)
    assert inside
    broker.kill9()
    broker.settings["journal_bucket_use"] = "read"
    broker.start()
    produce(broker, 2 * RECORDS)
    assert len(entries_elsewhere(server)) > len(before)
    assert values(broker) == expected(3 * RECORDS)
    broker.stop()
