"""The crash test's witnesses see what they are there to see: an audit that passes anything proves nothing."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import crc32c
import pytest

from tests.support import wire
from tests.support.audit import AuditedSegment, AuditError, audit, main
from tests.support.broker import KafscaleBroker
from tests.support.ledger import Ledger, Place, Record, value_of
from tests.support.sealing import SEALED_SOON
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

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


CODECS = {
    "sealed": ["none", "gzip"],
    "gathered": ["snappy", "lz4", "zstd", "none"],
    "in the journal": ["gzip", "zstd"],
}
NEVER_MS = 3_600_000
SEALING = {
    "sealed": SEALED_SOON,
    "gathered": {"seal_interval_ms": 100, "seal_max_age_ms": NEVER_MS},
    "in the journal": {"seal_interval_ms": NEVER_MS, "seal_max_age_ms": NEVER_MS},
}


def values_of(stage: str, number: int) -> list[bytes | None]:
    return [b"%s %d.%d " % (stage.encode(), number, i) * 20 for i in range(60)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A broker's objects of two partitions: segments, then a gathered object, then entries of a journal."""
    broker = KafscaleBroker(tmp_path_factory.mktemp("witnesses"), flush_interval_ms=0)

    def count(suffix: str, least: int) -> Callable[[], bool]:
        return lambda: len(list(broker.data_folder.rglob(f"*{suffix}"))) >= least

    try:
        for stage, codecs in CODECS.items():
            broker.settings.update(SEALING[stage])
            broker.start()
            if stage == "sealed":
                create_topic(broker, "t", 2)
                with wire.connect(broker) as connection:
                    producer_id, epoch = wire.init_producer_id(connection)
                sent = [0, 0]
            with wire.connect(broker) as connection:
                for number, codec in enumerate(codecs):
                    index = number % 2
                    batch = wire.batch(
                        values_of(stage, number),
                        codec=codec,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        sequence=sent[index],
                    )
                    assert wire.produce(connection, "t", index, batch).base_offset == sent[index]
                    sent[index] += 60
            if stage == "sealed":
                wait_until(count(".index", 2), "both partitions' segments")
            elif stage == "gathered":
                wait_until(
                    lambda: gathered_slices(broker.data_folder) == 2, "both partitions' gathered slices"
                )
            broker.stop()
        yield broker.data_folder
    finally:
        broker.close()


def gathered_slices(folder: Path) -> int:
    return sum(int.from_bytes(path.read_bytes()[16:20], "big") for path in folder.rglob("*.gathered"))


@pytest.fixture
def data_folder(stored: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(stored, tmp_path / "data")


def test_the_audit_reads_what_the_broker_wrote(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = audit(data_folder)
    for index in (0, 1):
        segments = found.partitions()[("t", index)]
        assert [segment.path.suffix for segment in segments] == [".kfs", ".gathered", ".entry"]
        expected = [
            value
            for stage, codecs in CODECS.items()
            for number in range(index, len(codecs), 2)
            for value in values_of(stage, number)
        ]
        assert [(one.offset, one.value) for one in found.records("t", index)] == list(enumerate(expected))
    assert not any(segment.lacks_index for segment in found.segments)
    assert main([str(data_folder)]) == 0
    assert "t-0: 3 segments, 240 records" in capsys.readouterr().out


def flip(position: int) -> Callable[[bytes], bytes]:
    """Change one byte."""

    def change(data: bytes) -> bytes:
        damaged = bytearray(data)
        damaged[position] ^= 1
        return bytes(damaged)

    return change


def with_crc(data: bytes) -> bytes:
    """The object with a head whose CRC fits."""
    head = data[: HEAD_BYTES + int.from_bytes(data[12:16], "big")]
    crc = crc32c.crc32c(head[12:], crc32c.crc32c(head[:8]))
    return data[:8] + crc.to_bytes(4, "big") + data[12:]


def lie(position: int) -> Callable[[bytes], bytes]:
    """Change one byte of the head, and its CRC accordingly."""
    return lambda data: with_crc(flip(position)(data))


def lie_in_row(position: int) -> Callable[[bytes], bytes]:
    """Change one byte of the first row of the directory, and the CRC accordingly."""
    return lambda data: lie(first_row(data) + position)(data)


def lie_in_slice(position: int) -> Callable[[bytes], bytes]:
    """Change one byte of the first slice."""
    return lambda data: flip(HEAD_BYTES + int.from_bytes(data[12:16], "big") + position)(data)


def first_row(data: bytes) -> int:
    return HEAD_BYTES + int.from_bytes(data[48:50], "big")


HEAD_BYTES, ROW_BYTES = 50, 75
OF_JOURNALS = [
    pytest.param(flip(0), id="magic"),
    pytest.param(flip(11), id="CRC of the head"),
    pytest.param(flip(21), id="broker id"),
    pytest.param(lie(5), id="version"),
    pytest.param(lie(7), id="kind"),
    pytest.param(lie(15), id="length of the head"),
    pytest.param(lie(19), id="slice count"),
    pytest.param(lie(30), id="sequence"),
    pytest.param(lie(32), id="committed through"),
    pytest.param(lambda data: with_crc(data[:40] + bytes(8) + data[48:]), id="created"),
    pytest.param(lie(49), id="length of the journal's id"),
    pytest.param(lie(50), id="journal id"),
    pytest.param(lie_in_row(23), id="leader epoch"),
    pytest.param(lie_in_row(31), id="base offset"),
    pytest.param(lie_in_row(35), id="last offset"),
    pytest.param(lie_in_row(39), id="record count"),
    pytest.param(lie_in_row(47), id="largest timestamp"),
    pytest.param(lie_in_row(55), id="start"),
    pytest.param(lie_in_row(63), id="size"),
    pytest.param(lie_in_row(67), id="CRC of the body"),
    pytest.param(lie_in_row(68), id="kind of the slice"),
    pytest.param(lie_in_row(72), id="a key"),
    pytest.param(lie_in_row(74), id="producer count"),
    pytest.param(lie_in_slice(0), id="a slice's magic"),
    pytest.param(lie_in_slice(19), id="a slice's record count"),
    pytest.param(lie_in_slice(200), id="a record"),
    pytest.param(flip(-1), id="a slice's footer magic"),
    pytest.param(lambda data: data[:-1], id="cut short"),
    pytest.param(lambda data: data[:100], id="half a head"),
    pytest.param(lambda data: data + b"\x00", id="too long"),
]


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
    check_damage(data_folder, suffix, change)


@pytest.mark.parametrize("suffix", [".entry", ".gathered"])
@pytest.mark.parametrize("change", OF_JOURNALS)
def test_the_audit_finds_damage_in_journals(
    data_folder: Path, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    check_damage(data_folder, suffix, change)


@pytest.mark.parametrize("position", [7, 9, 13, 17, 25], ids=["id", "epoch", "first", "last", "base offset"])
def test_the_audit_finds_false_producers(data_folder: Path, position: int) -> None:
    producer = ROW_BYTES + len("t") + position
    check_damage(data_folder, ".entry", lie_in_row(producer))


def check_damage(data_folder: Path, suffix: str, change: Callable[[bytes], bytes]) -> None:
    path = sorted(data_folder.rglob(f"*{suffix}"), key=lambda one: one.stat().st_size)[-1]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(AuditError, match=path.name):
        audit(data_folder)
    assert main([str(data_folder)]) == 1


def newest_entry(data_folder: Path) -> tuple[Path, AuditedSegment]:
    """The entry with the last records, and these."""
    segment = max(audit(data_folder).partitions()[("t", 1)], key=lambda one: one.base_offset)
    assert segment.path.suffix == ".entry"
    return segment.path, segment


def test_the_audit_counts_nothing_from_a_fence_on(data_folder: Path) -> None:
    path, newest = newest_entry(data_folder)
    entry = path.read_bytes()
    journal_id = entry[HEAD_BYTES : first_row(entry)]
    fixed = bytearray(entry[:HEAD_BYTES])
    fixed[7] = 1
    fixed[12:20] = len(journal_id).to_bytes(4, "big") + bytes(4)  # no directory, no slices
    fixed[32:40] = (-1).to_bytes(8, "big", signed=True)
    path.write_bytes(with_crc(bytes(fixed) + journal_id))
    assert [one.offset for one in audit(data_folder).records("t", 1)] == list(range(newest.base_offset))


def test_the_audit_counts_nothing_behind_a_gap(data_folder: Path) -> None:
    path, newest = newest_entry(data_folder)
    entry = bytearray(path.read_bytes())
    entry[31] += 1
    path.unlink()
    path.with_stem(f"{int(path.stem) + 1:020d}").write_bytes(with_crc(bytes(entry)))
    assert [one.offset for one in audit(data_folder).records("t", 1)] == list(range(newest.base_offset))


def test_the_audit_leaves_slices_of_deleted_topics_out(data_folder: Path) -> None:
    path, _ = newest_entry(data_folder)
    entry = path.read_bytes()
    topic_id = uuid.UUID(bytes=entry[first_row(entry) : first_row(entry) + 16])
    (path.parents[2] / "deleted").mkdir(exist_ok=True)
    (path.parents[2] / "deleted" / str(topic_id)).touch()
    assert {segment.path.suffix for segment in audit(data_folder).segments} == {".kfs"}
