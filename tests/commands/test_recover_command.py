"""`kafscale recover`: what it prints, what it writes, and its exit codes."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafscale.cluster.marker import claim_marker
from kafscale.commands import recover as recover_command
from kafscale.commands.cli import main
from kafscale.commands.recover import EXIT_REFUSED
from kafscale.formats.journal_entry import Fence, decode_cell
from kafscale.formats.journal_keys import deleted_key
from kafscale.objects.local.store import LocalStore
from tests.formats.segments import SAMPLE_BUCKET, segment_of
from tests.tools.journal_objects import put_entry, put_fence, put_gathered, slice_of, topic_id
from tests.tools.recovery.recovery_bucket import batch, key_of, put

pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A data folder whose objects are another writer's."""
    shutil.copytree(SAMPLE_BUCKET, tmp_path / "objects")
    return tmp_path


@pytest.fixture
def leftovers(tmp_path: Path) -> Path:
    """A data folder with a leftover, a damaged segment and a foreign object."""
    segments = [[batch(0, 3, 0)], [batch(3, 5, 0)], [batch(4, 2, 2)], [batch(6, 1, 2)]]
    for batches in segments:
        path = tmp_path / "objects" / key_of(batches)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = segment_of(batches)
        path.write_bytes(data[:50] + b"!" + data[51:] if batches is segments[3] else data)
    (tmp_path / "objects" / "production" / "note.txt").write_bytes(b"hello")
    return tmp_path


def recover(folder: Path, *arguments: str, **environment: str) -> Result:
    settings = {"KAFSCALE_DATA_DIR": str(folder), "KAFSCALE_S3_NAMESPACE": "production"}
    return CliRunner().invoke(main, ["recover", *arguments], env=settings | environment)


def recover_json(folder: Path, *arguments: str) -> dict[str, Any]:
    result = recover(folder, "--json", *arguments)
    fields = json.loads(result.stdout)
    assert isinstance(fields, dict)
    return fields


def rows(result: Result) -> dict[str, list[str]]:
    """The table's rows by topic and partition."""
    lines = [re.split(r"\s{2,}", line) for line in result.stdout.splitlines()]
    return {f"{cells[0]}-{cells[1]}": cells[2:] for cells in lines if len(cells) == 12}


def test_the_plan_is_a_table_and_nothing_is_written(samples: Path) -> None:
    result = recover(samples)
    assert result.exit_code == 0, result.output
    table = rows(result)
    assert table["orders-0"] == ["2", "70", "1277", "0", "70", "none", "-", "-", "-", "-"]
    assert table["java-snappy-0"][:2] == ["28", "600"]
    assert "Nothing was written. --apply carries this out." in result.stdout
    assert "Consumer groups and committed offsets" in result.stdout
    assert recover(samples).stdout == result.stdout
    assert recover_json(samples)["refusals"] == []


def test_apply_writes_and_may_be_run_again(samples: Path) -> None:
    first = recover(samples, "--apply")
    assert first.exit_code == 0, first.output
    assert "Rebuilt 3 topics" in first.stdout and "Brokers may be started." in first.stdout
    again = recover_json(samples, "--apply")["rebuilt"]
    assert (again["written"], again["already_there"]) == ([], ["java-snappy", "java-zstd", "orders"])
    assert again["cluster_id"] in first.stdout


def test_one_topic_alone(samples: Path) -> None:
    result = recover(samples, "--apply", "--topic", "orders")
    assert result.exit_code == 0
    assert list(rows(result)) == ["TOPIC-PARTITION", "orders-0"]
    assert "Rebuilt 1 topics" in result.stdout and "Brokers may be started." not in result.stdout
    rest = recover_json(samples, "--apply")["rebuilt"]
    assert (rest["written"], rest["already_there"]) == (["java-snappy", "java-zstd"], ["orders"])


def test_everything_left_out_damaged_or_missing_is_reported(leftovers: Path) -> None:
    result = recover(leftovers)
    assert result.exit_code == 0
    assert rows(result)["orders-0"] == ["2", "5", "268", "0", "7", "2", "1", "1", "2", "-"]
    assert re.search(r"segment-0+3\.kfs: offsets 3 to 7, leader epoch 0; orphan: ", result.stdout)
    assert re.search(r"segment-0+6\.kfs: batch|segment-0+6\.kfs: the body", result.stdout)
    assert "orders-0: offsets 3 to 3; skipped: an orphan lies there" in result.stdout
    assert "orders-0: offsets 6 to 6; a damaged segment begins there" in result.stdout
    assert "1 objects are neither segments nor indexes" in result.stdout
    assert "In the way of --apply:\n  1 damaged objects" in result.stdout


def test_json_holds_everything(leftovers: Path) -> None:
    fields = recover_json(leftovers)
    assert (fields["namespace"], fields["cluster_id"], fields["foreign_objects"]) == ("production", None, 1)
    assert fields["rebuilt"] is None
    [topic] = fields["topics"]
    [partition] = topic["partitions"]
    assert (topic["topic"], topic["problem"], partition["partition"]) == ("orders", None, 0)
    assert (partition["segments"], partition["records"]) == (2, 5)
    assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, 7)
    assert (partition["highest_leader_epoch"], partition["record_leader_epoch"]) == (2, 10_002)
    [dropped] = partition["dropped"]
    assert (dropped["base_offset"], dropped["last_offset"], dropped["reason"]) == (3, 7, "LEFTOVER")
    assert dropped["because"].endswith("4.kfs")
    assert [hole["reason"] for hole in partition["holes"]] == ["SKIPPED", "DAMAGED"]
    assert partition["damaged"][0]["base_offset"] == 6


def test_a_plan_with_refusals_promises_no_apply(leftovers: Path) -> None:
    assert recover(leftovers, "--skip-damaged").stdout.endswith(
        "Nothing was written. --apply carries this out.\n"
    )
    refused = recover(leftovers).stdout
    assert "In the way of --apply" in refused
    assert refused.endswith("Nothing was written. --apply is refused while the above stands in its way.\n")


def test_damage_is_refused_unless_it_is_to_be_left_out(leftovers: Path) -> None:
    result = recover(leftovers, "--apply")
    assert result.exit_code == EXIT_REFUSED
    assert re.search(
        r"^kafscale: refused: 1 damaged objects, .*6\.kfs: .*--skip-damaged", result.stderr, re.M
    )
    assert recover_json(leftovers, "--apply")["rebuilt"] is None
    done = recover(leftovers, "--apply", "--skip-damaged")
    assert done.exit_code == 0
    assert "KAFSCALE_GARBAGE_GRACE_SEC" in done.stdout


def test_configs_that_are_set(samples: Path) -> None:
    assert recover(samples, "--apply", "--config", "retention.ms=-1").exit_code == 0
    other = recover(samples, "--apply")
    assert other.exit_code == EXIT_REFUSED
    assert "another topic 'java-snappy'" in other.stderr
    assert recover(samples, "--apply", "--config", "retention.ms=-1").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--topic", "a/b"], {}, "--topic 'a/b' is not legal"),
        (["--config", "retention.ms"], {}, "--config 'retention.ms' is not legal: it must be NAME=VALUE"),
        (["--config", "no.such=1"], {}, "--config is not legal"),
        ([], {"KAFSCALE_S3_NAMESPACE": "_x"}, "KAFSCALE_S3_NAMESPACE='_x' is not legal"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    result = recover(tmp_path, *arguments, **environment)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"kafscale: {says}")
    assert len(result.stderr.splitlines()) == 1


def test_a_store_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"something else entirely" * 100)
    result = recover(tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith("kafscale: ")
    assert len(result.stderr.splitlines()) == 1


def test_an_empty_bucket_has_nothing_to_rebuild(tmp_path: Path) -> None:
    result = recover(tmp_path)
    assert result.exit_code == 0
    assert "Nothing to rebuild" in result.stdout


def test_long_work_says_how_far_it_is(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recover(samples).stderr == ""
    monkeypatch.setattr(recover_command, "PROGRESS_SEC", 0.0)
    result = recover(samples, "--apply", "--json")
    assert re.search(r"^kafscale: checked 58 segments, 0\.0 GB, now at production/", result.stderr, re.M)
    assert re.search(r"^kafscale: wrote 3 topics, now at orders", result.stderr, re.M)
    json.loads(result.stdout)


def test_help_names_every_option() -> None:
    result = CliRunner().invoke(main, ["recover", "--help"])
    for option in ("--apply", "--topic", "--skip-damaged", "--config", "--json"):
        assert option in result.output


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Segments, entries of three journals, a gathered object, fences, and the marker of a deleted topic."""

    async def put_all() -> None:
        store = LocalStore(tmp_path / "objects", fsync=False)
        await claim_marker(store, "production", "the-cluster")
        # orders-0: a segment, its source in an entry, what is behind it, and a successor's.
        await put(store, batch(0, 3, 0))
        await put_entry(store, 4, slice_of("orders", 0, batch(0, 3, 0)))
        await put_entry(store, 5, slice_of("orders", 0, batch(3, 2, 0)), slice_of("users", 1, batch(0, 1, 0)))
        await put_fence(store, 6)
        await put_fence(store, 20)
        await put_entry(store, 7, slice_of("orders", 0, batch(5, 9, 0)), committed_through=3)
        await put_entry(store, 0, slice_of("orders", 0, batch(5, 4, 1)), journal_id="2-def")
        # Sealed while entry 1 was in flight, which never came.
        late = slice_of("orders", 0, batch(9, 1, 1))
        await put_entry(store, 2, late, committed_through=0, journal_id="2-def")
        # users-0 has all in a gathered object; gone was deleted.
        await put_gathered(
            store, 0, slice_of("users", 0, batch(0, 7, 0)), slice_of("gone", 0, batch(0, 1, 0))
        )
        await put_entry(store, 0, slice_of("gone", 0, batch(1, 1, 0)), journal_id="3-ghi")
        await store.put_if_absent(deleted_key("production", topic_id("gone")), [b""])
        await store.close()

    asyncio.run(put_all())
    return tmp_path


def test_journals_segments_and_gathered_objects_make_one_log(journals: Path) -> None:
    result = recover(journals)
    assert result.exit_code == 0, result.output
    table = rows(result)
    assert set(table) == {"TOPIC-PARTITION", "orders-0", "users-0", "users-1"}
    assert (table["orders-0"][:2], table["orders-0"][3:6]) == (["3", "9"], ["0", "9", "1"])
    assert (table["users-0"][1], table["users-1"][1]) == ("7", "1")
    assert "It has 3 journals" in result.stdout
    fields = recover_json(journals)
    assert fields["journals"] == [
        {"journal": "1-abc", "broker": 1, "ended_at": 6},
        {"journal": "2-def", "broker": 1, "ended_at": 1},
        {"journal": "3-ghi", "broker": 1, "ended_at": 1},
    ]
    assert not list(journals.rglob("2-def/*00001.entry")), "a plan writes nothing"


def test_apply_ends_the_journals_and_may_be_run_again(journals: Path) -> None:
    first = recover(journals, "--apply")
    assert first.exit_code == 0, first.output
    fence = next(journals.rglob("journals/2-def/*00001.entry")).read_bytes()
    assert isinstance(decode_cell("fence", fence), Fence)
    objects = sorted(path for path in journals.rglob("*") if path.is_file())
    again = recover_json(journals, "--apply")["rebuilt"]
    assert (again["written"], again["already_there"]) == ([], ["orders", "users"])
    assert sorted(path for path in journals.rglob("*") if path.is_file()) == objects


def test_entry_that_cannot_be_read_is_damage(journals: Path) -> None:
    path = next(journals.rglob("journals/1-abc/*00005.entry"))
    path.write_bytes(path.read_bytes()[:70])
    refused = recover(journals, "--apply")
    assert refused.exit_code == EXIT_REFUSED
    assert re.search(
        r"refused: 1 entries of journals or gathered objects cannot be read.*00005\.entry", refused.stderr
    )
    assert not list(journals.rglob("2-def/*00001.entry")), "refused before a fence is put"
    assert recover(journals, "--apply", "--skip-damaged").exit_code == 0


def test_bucket_of_a_later_release_is_refused(journals: Path) -> None:
    marker = journals / "objects" / "_kafscale" / "production" / "cluster"
    marker.write_bytes(marker.read_bytes().replace(b'"version":2', b'"version":3'))
    result = recover(journals, "--apply")
    assert result.exit_code == 1
    assert "version 3" in result.stderr and len(result.stderr.splitlines()) == 1
