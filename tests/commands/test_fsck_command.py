"""`kafscale fsck`: what it prints, what it repairs, and its exit codes."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafscale.cluster.marker import encode_marker
from kafscale.commands import fsck as fsck_command
from kafscale.commands.cli import main
from tests.formats.segments import SAMPLE_BUCKET, segment_of
from tests.tools.recovery.recovery_bucket import batch, key_of

CLEAN, STORE_FAILED, NOT_LEGAL, PROBLEMS = 0, 1, 2, 3
SEGMENT = "production/orders/0/segment-00000000000000000040"


pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A data folder with what another writer of the format left, adopted by a cluster."""
    shutil.copytree(SAMPLE_BUCKET, tmp_path / "objects")
    for path in tmp_path.rglob("*"):
        path.chmod(0o755)
    adopted = run(tmp_path, "recover", "--apply", "--json")
    marker = tmp_path / "objects" / "_kafscale" / "production" / "cluster"
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_bytes(encode_marker(json.loads(adopted.stdout)["rebuilt"]["cluster_id"]))
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str) -> Result:
    settings = {"KAFSCALE_DATA_DIR": str(folder), "KAFSCALE_S3_NAMESPACE": "production"}
    return CliRunner().invoke(main, [*arguments], env=settings | environment)


def fsck(folder: Path, *arguments: str, **environment: str) -> Result:
    return run(folder, "fsck", *arguments, **environment)


def fsck_json(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = fsck(folder, "--json", *arguments)
    fields = json.loads(result.stdout)
    assert isinstance(fields, dict)
    return result.exit_code, fields


def of(fields: dict[str, Any], topic: str) -> dict[str, Any]:
    [found] = [one for one in fields["partitions"] if one["topic"] == topic]
    assert isinstance(found, dict)
    return found


def objects(folder: Path) -> Path:
    return folder / "objects"


def rows(result: Result) -> dict[str, list[str]]:
    lines = [re.split(r"\s{2,}", line) for line in result.stdout.splitlines()]
    return {f"{cells[0]}-{cells[1]}": cells[2:] for cells in lines if len(cells) == 11}


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_a_sound_cluster(samples: Path, verify: tuple[str, ...]) -> None:
    result = fsck(samples, *verify)
    assert result.exit_code == CLEAN, result.output
    assert "Checked 3 partitions with 58 segments, 1270 records" in result.stdout
    assert "Nothing is remarkable about any partition." in result.stdout
    assert "No problems; 0 warnings, 0 orphans." in result.stdout
    assert ("every byte was read" in result.stdout) == bool(verify)
    status, fields = fsck_json(samples, *verify)
    assert (status, fields["problems_left"], fields["verified"]) == (CLEAN, 0, bool(verify))
    assert of(fields, "orders") == {
        "topic": "orders",
        "partition": 0,
        "standing": "ACTIVE",
        "segments": 2,
        "records": 70,
        "bytes": 1277,
        "log_start_offset": 0,
        "log_end_offset": 70,
        "unjudged_objects": 0,
        "findings": [],
        "orphans": [],
    }


def test_damage_is_reported_and_ends_with_3(samples: Path) -> None:
    path = objects(samples) / f"{SEGMENT}.kfs"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    assert fsck(samples).exit_code == CLEAN
    result = fsck(samples, "--verify")
    assert result.exit_code == PROBLEMS
    assert rows(result)["orders-0"] == ["active", "2", "70", "1277", "0", "70", "1", "-", "-"]
    assert re.search(
        r"^Problems:\n  orders-0: a published segment is damaged; .*; offsets 40 to 69; "
        rf"{SEGMENT}\.kfs$",
        result.stdout,
        re.M,
    )
    assert result.stdout.endswith("\n1 problems, 0 warnings, 0 orphans.\n")
    _, fields = fsck_json(samples, "--verify")
    [finding] = of(fields, "orders")["findings"]
    assert (finding["kind"], finding["severity"]) == ("SEGMENT_DAMAGED", "problem")
    assert (finding["key"], finding["first_offset"], finding["last_offset"]) == (f"{SEGMENT}.kfs", 40, 69)


def test_an_index_is_repaired(samples: Path) -> None:
    path = objects(samples) / f"{SEGMENT}.index"
    path.unlink()
    result = fsck(samples)
    # As after a broker that was killed between an acknowledgement and the arrival of the index.
    assert result.exit_code == CLEAN
    assert "a published segment has no index" in result.stdout.partition("Warnings")[2]
    assert f"What --repair does:\n  orders-0: rebuild indexes from their segments: {SEGMENT}.index" in (
        result.stdout
    )
    assert not path.exists()
    status, fields = fsck_json(samples, "--repair")
    [repair] = fields["repairs"]
    assert (status, fields["problems_left"], repair["action"]) == (CLEAN, 0, "REWRITE_INDEX")
    assert repair["outcome"] == {"done": True, "detail": "1 indexes written"}
    assert path.exists()
    assert fsck(samples, "--verify").exit_code == CLEAN
    assert "There was nothing to repair." in fsck(samples, "--repair").stdout


def test_orphans_are_no_damage(samples: Path) -> None:
    for batches in ([batch(69, 1, 0)], [batch(70, 3, 0)]):
        (objects(samples) / key_of(batches)).write_bytes(segment_of(batches))
    (objects(samples) / "production" / "note.txt").write_bytes(b"hello")
    result = fsck(samples)
    assert result.exit_code == CLEAN
    assert rows(result)["orders-0"][-3:] == ["-", "-", "2"]
    assert re.search(
        r"Orphans, an older leader's upload.* \(1 objects, \d+ bytes\):\n  .*segment-0+69\.kfs\n",
        result.stdout,
    )
    assert re.search(r"Orphans, above the log's end: .*:\n  .*segment-0+70\.kfs\n", result.stdout)
    assert "1 objects that no broker has put there: left alone:\n  production/note.txt" in result.stdout
    assert "What --repair does" not in result.stdout  # They are too young.
    _, fields = fsck_json(samples)
    assert [(one["reason"], one["because"]) for one in of(fields, "orders")["orphans"]] == [
        ("LEFTOVER", f"{SEGMENT}.kfs"),
        ("ABOVE_LOG_END", None),
    ]
    assert (fields["foreign_objects"], fields["foreign_examples"]) == (1, ["production/note.txt"])


def test_what_is_gone_is_dropped_only_where_that_is_asked_for(samples: Path) -> None:
    for suffix in ("kfs", "index"):
        (objects(samples) / f"production/java-zstd/0/segment-{22:020d}.{suffix}").unlink()
    told = fsck(samples)
    assert told.exit_code == PROBLEMS and "What --repair does" not in told.stdout
    planned = fsck(samples, "--drop-missing")
    assert "THEIR RECORDS ARE LOST" in planned.stdout and "LOST: offsets 22 to 43" in planned.stdout
    assert fsck(samples, "--repair").exit_code == PROBLEMS
    done = fsck(samples, "--repair", "--drop-missing")
    assert done.exit_code == CLEAN, done.output
    assert "1 segments dropped; LOST: offsets 22 to 43" in done.stdout
    # The hole stays, and stays told.
    after = fsck(samples, "--verify")
    assert after.exit_code == PROBLEMS and "offsets 22 to 43" in after.stdout
    assert fsck(samples, "--verify", "--ignore-holes").exit_code == CLEAN


def test_one_topic(samples: Path) -> None:
    (objects(samples) / f"{SEGMENT}.kfs").unlink()
    assert fsck(samples, "--topic", "java-zstd").exit_code == CLEAN
    status, fields = fsck_json(samples, "--topic", "orders", "--topic", "java-zstd")
    assert status == PROBLEMS
    assert [one["topic"] for one in fields["partitions"]] == ["java-zstd", "orders"]


def test_stores_that_do_not_belong_together(tmp_path: Path) -> None:
    result = fsck(tmp_path, "--repair", "--drop-missing")
    assert result.exit_code == PROBLEMS
    assert "the metadata store belongs to no cluster" in result.stdout
    assert "Nothing was compared" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--topic", "a/b"], {}, "--topic 'a/b' is not legal"),
        (["--topic", "no-such"], {}, "--topic 'no-such' is not legal: there is no topic 'no-such'"),
        ([], {"KAFSCALE_S3_NAMESPACE": "_x"}, "KAFSCALE_S3_NAMESPACE='_x' is not legal"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    samples: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    result = fsck(samples, *arguments, **environment)
    assert result.exit_code == NOT_LEGAL
    assert result.stderr.startswith(f"kafscale: {says}")
    assert len(result.stderr.splitlines()) == 1


def test_a_store_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"something else entirely" * 100)
    result = fsck(tmp_path)
    assert result.exit_code == STORE_FAILED
    assert result.stderr.startswith("kafscale: ") and len(result.stderr.splitlines()) == 1


def test_long_work_says_how_far_it_is(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fsck(samples, "--verify").stderr == ""
    monkeypatch.setattr(fsck_command, "PROGRESS_SEC", 0.0)
    result = fsck(samples, "--verify", "--json")
    assert re.search(r"^kafscale: checked 3 partitions, 116 objects, now at ", result.stderr, re.M)
    assert re.search(r"^kafscale: read 0\.0 GB, now at production/", result.stderr, re.M)
    json.loads(result.stdout)


def test_help_names_every_option() -> None:
    result = CliRunner().invoke(main, ["fsck", "--help"])
    for option in ("--verify", "--topic", "--repair", "--drop-missing", "--ignore-holes", "--json"):
        assert option in result.output
