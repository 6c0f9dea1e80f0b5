"""The crash test's witnesses see what they are there to see: an audit that passes anything proves nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker
from tests.support import wire
from tests.support.audit import AuditError, audit, main
from tests.support.ledger import Ledger, Place, Record, value_of
from tests.support.topics import create_topic

PLACE: Place = ("t", 0)
SENT: list[Record] = [(n, value_of("p", n)) for n in range(5)]


@pytest.fixture
def ledger() -> Ledger:
    """Five records of one producer, all acknowledged."""
    made = Ledger()
    for offset, value in SENT:
        assert value is not None
        made.acknowledge(*PLACE, offset, value)
    return made


def test_ledger_accepts_promised_and_additional_values(ledger: Ledger) -> None:
    ledger.check({PLACE: SENT})
    ledger.check({PLACE: [*SENT, (7, value_of("p", 5))]})  # stored, never acknowledged


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        pytest.param(SENT[:-1], "not where they were promised", id="lost at the end"),
        pytest.param([*SENT[:2], *SENT[3:]], "not where they were promised", id="lost in the middle"),
        pytest.param([(n + 1, value) for n, value in SENT], "not where", id="moved"),
        pytest.param([*SENT, (5, SENT[4][1])], "number 4 at offset 5 comes after its number 4", id="doubled"),
        pytest.param([*SENT, (4, value_of("q", 0))], "strictly increasing", id="two at one offset"),
        pytest.param([SENT[1], SENT[0], *SENT[2:]], "strictly increasing", id="read out of order"),
        pytest.param([*SENT, (5, value_of("p", 3))], "comes after its number 4", id="an old one again"),
    ],
)
def test_the_ledger_complains(ledger: Ledger, read: list[Record], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        ledger.check({PLACE: read})


def test_promise_without_offset_is_kept_at_any_offset(
    ledger: Ledger,
) -> None:
    value = value_of("p", 5)
    ledger.acknowledge_somewhere(*PLACE, value)
    ledger.check({PLACE: [*SENT, (7, value)]})
    with pytest.raises(AssertionError, match="not where they were promised"):
        ledger.check({PLACE: SENT})
    with pytest.raises(AssertionError, match="not where they were promised"):
        ledger.check({PLACE: SENT, (PLACE[0], PLACE[1] + 1): [(7, value)]})


def test_the_ledger_complains_about_failures_of_the_producers(ledger: Ledger) -> None:
    ledger.fail("fenced")
    with pytest.raises(AssertionError, match="fenced"):
        ledger.check({PLACE: SENT})


@pytest.fixture
def data_folder(start_broker: StartBroker) -> Path:
    """What a broker left: two partitions, several segments, several codecs."""
    broker = start_broker(flush_interval_ms=0)
    create_topic(broker, "t", 2)
    with wire.connect(broker) as connection:
        for n, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
            records = wire.batch([b"%d.%d " % (n, i) * 20 for i in range(60)], codec=codec)
            wire.produce(connection, "t", n % 2, records)
    broker.stop()
    return broker.data_folder


def test_the_audit_reads_what_the_broker_wrote(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = audit(data_folder)
    assert {place: len(segments) for place, segments in found.partitions().items()} == {
        ("t", 0): 3,
        ("t", 1): 2,
    }
    assert all(segment.has_index for segment in found.segments)
    expected = [b"%d.%d " % (n, i) * 20 for n in (0, 2, 4) for i in range(60)]
    assert [(one.offset, one.value) for one in found.records("t", 0)] == list(enumerate(expected))
    assert main([str(data_folder)]) == 0
    assert "t-0: 3 segments, 180 records" in capsys.readouterr().out


def flip(position: int) -> Callable[[bytes], bytes]:
    """Change one byte."""

    def change(data: bytes) -> bytes:
        damaged = bytearray(data)
        damaged[position] ^= 1
        return bytes(damaged)

    return change


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        pytest.param(".kfs", flip(0), id="magic"),
        pytest.param(".kfs", flip(5), id="version"),
        pytest.param(".kfs", flip(15), id="base offset"),
        pytest.param(".kfs", flip(19), id="record count"),
        pytest.param(".kfs", flip(31), id="reserved"),
        pytest.param(".kfs", flip(39), id="a batch's offset"),
        pytest.param(".kfs", flip(200), id="a record"),
        pytest.param(".kfs", flip(-13), id="CRC"),
        pytest.param(".kfs", flip(-5), id="last offset"),
        pytest.param(".kfs", flip(-1), id="footer magic"),
        pytest.param(".kfs", lambda data: data[:-1], id="cut short"),
        pytest.param(".kfs", lambda data: data + b"\x00", id="too long"),
        pytest.param(".index", flip(0), id="index magic"),
        pytest.param(".index", flip(9), id="index entries"),
        pytest.param(".index", flip(23), id="index offset"),
        pytest.param(".index", flip(27), id="index position"),
        pytest.param(".index", lambda data: data[:-12], id="index cut short"),
    ],
)
def test_the_audit_finds_damage(data_folder: Path, suffix: str, change: Callable[[bytes], bytes]) -> None:
    path = sorted(data_folder.rglob(f"*{suffix}"))[0]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(AuditError, match=path.name):
        audit(data_folder)
    assert main([str(data_folder)]) == 1
