"""`kafscale backup`, and `kafscale recover --backup` with what it took: what they print, and their exit codes."""

import asyncio
import json
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kafscale.broker.stores import backup_location
from kafscale.cluster.cluster_record import adopt_cluster_id
from kafscale.cluster.marker import encode_marker
from kafscale.commands.cli import main
from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.object_keys import cluster_marker_key
from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import Put
from kafscale.settings.broker import SETTINGS, load_settings
from kafscale.tools.backup.snapshots import Snapshots
from tests.formats.segments import segment_of
from tests.tools.recovery.recovery_bucket import batch, key_of

pytestmark = pytest.mark.usefixtures("logging_as_before")

ORDERS = TopicRecord(
    name="orders", topic_id=uuid.UUID(int=7), partition_count=2, configs={"retention.ms": "-1"}
)
COMMITTED = CommittedOffset(topic_id=ORDERS.topic_id, offset=3, commit_timestamp_ms=1)
STATE = (
    Put(keys.topic("orders"), encode_topic_record(ORDERS)),
    Put(
        keys.partition("orders", 0),
        encode_partition_record(PartitionRecord(leader_epoch=2, log_end_offset=4)),
    ),
    Put(keys.partition("orders", 1), encode_partition_record(PartitionRecord(leader_epoch=2))),
    Put(keys.group_offset("g", "orders", 0), encode_committed_offset(COMMITTED)),
)


async def _fill(folder: Path, puts: Sequence[Put]) -> None:
    store = await SqliteStore.open(folder / "metadata.db", fsync=False)
    try:
        await adopt_cluster_id(store, "the-cluster")
        await store.transact([], puts)
    finally:
        await store.close()


async def _held(folder: Path) -> dict[str, bytes]:
    store = await SqliteStore.open(folder / "metadata.db", fsync=False)
    try:
        return {item.key: item.value for item in (await store.range("")).items}
    finally:
        await store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a topic of six records, of which the metadata store knows four."""
    asyncio.run(_fill(tmp_path, STATE))
    for batches in ([batch(0, 4, 2)], [batch(4, 2, 3)]):
        path = tmp_path / "objects" / key_of(batches)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(segment_of(batches))
    return tmp_path


def call(folder: Path, *arguments: str, **environment: str) -> Result:
    settings = {"KAFSCALE_DATA_DIR": str(folder), "KAFSCALE_S3_NAMESPACE": "production"}
    return CliRunner().invoke(main, arguments, env=settings | environment)


def call_json(folder: Path, *arguments: str) -> Any:
    result = call(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def snapshot_file(folder: Path, key: str) -> Path:
    return folder / "backups" / key


def lose_metadata(folder: Path) -> None:
    for path in folder.glob("metadata.db*"):
        path.unlink()


def test_one_is_taken_listed_and_sound(data: Path) -> None:
    taken = call_json(data, "backup", "create")
    assert taken["key"].startswith("kafscale-backups/production/")
    assert (taken["cluster_id"], taken["keys"], taken["removed"]) == ("the-cluster", 5, [])
    assert taken["size_bytes"] == snapshot_file(data, taken["key"]).stat().st_size
    assert taken["location"] == str(snapshot_file(data, taken["key"]))
    [listed] = call_json(data, "backup", "list")
    assert listed == {
        name: taken[name] for name in ("key", "created_ms", "revision", "cluster_id", "size_bytes")
    }
    [checked] = call_json(data, "backup", "verify")
    assert (checked["problem"], checked["topics"], checked["partitions"]) == (None, 1, 2)
    assert (checked["groups"], checked["committed_offsets"]) == (0, 1)
    text = call(data, "backup", "list").stdout
    assert taken["key"] in text and "REVISION" in text
    assert "sound; cluster the-cluster" in call(data, "backup", "verify", "newest").stdout


def test_create_says_where_the_snapshot_lies(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = call(data, "backup", "create").stdout.splitlines()
    assert Path(told[1].removeprefix("It is ")).is_file()
    monkeypatch.chdir(data)
    told = call(Path(), "backup", "create").stdout.splitlines()
    assert Path(told[1].removeprefix("It is ")).is_absolute()
    settings = load_settings({"KAFSCALE_S3_BUCKET": "records", "KAFSCALE_BACKUP_BUCKET": "gs://copies"})
    assert backup_location(settings, "k/s.kfsnap") == "gs://copies/k/s.kfsnap"
    settings = load_settings({"KAFSCALE_S3_BUCKET": "records", "KAFSCALE_BACKUP_BUCKET": "copies"})
    assert backup_location(settings, "k/s.kfsnap") == "s3://copies/k/s.kfsnap"


def test_old_ones_go_when_that_is_asked_for(data: Path) -> None:
    key = call_json(data, "backup", "create")["key"]
    older = key.replace(Path(key).name, "20200101T000000Z-0000000000000001-the-cluster.kfsnap")
    shutil.copy(snapshot_file(data, key), snapshot_file(data, older))
    assert call_json(data, "backup", "create", "--keep", "1", "--keep-days", "100000")["removed"] == []
    assert older in call_json(data, "backup", "create", "--keep", "1")["removed"]
    assert len(call_json(data, "backup", "list")) == 1
    assert call(data, "backup", "create", "--keep-days", "3").exit_code == 2


def put_marker(folder: Path, cluster_id: str) -> None:
    path = folder / "objects" / cluster_marker_key("production")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_marker(cluster_id))


def put_another_clusters(data: Path, key: str) -> str:
    """A newer snapshot of another cluster, which has the same namespace in a bucket of its own; its key."""
    other = str(Path(key).with_name("29990101T000000Z-0000000000000001-another.kfsnap"))
    snapshot_file(data, other).write_bytes(b"another's")
    return other


def test_backups_of_another_cluster_are_ignored(data: Path) -> None:
    key = call_json(data, "backup", "create")["key"]
    other = put_another_clusters(data, key)
    removed = call_json(data, "backup", "create", "--keep", "1")["removed"]
    assert other not in removed
    assert other in [one["key"] for one in call_json(data, "backup", "list")]
    lose_metadata(data)
    put_marker(data, "the-cluster")
    done = call_json(data, "recover", "--backup", "newest", "--apply")
    assert "-the-cluster.kfsnap" in done["snapshot"]["key"]


def test_newest_of_several_clusters_is_not_guessed(
    data: Path,
) -> None:
    put_another_clusters(data, call_json(data, "backup", "create")["key"])
    lose_metadata(data)
    result = call(data, "recover", "--backup", "newest", "--apply")
    assert result.exit_code == 2
    assert "snapshots of the clusters another, the-cluster" in result.stderr
    assert not asyncio.run(_held(data))


def test_a_damaged_one_ends_with_a_status_of_its_own(data: Path) -> None:
    key = call_json(data, "backup", "create")["key"]
    path = snapshot_file(data, key)
    content = path.read_bytes()
    path.write_bytes(content[:-40] + b"!" + content[-39:])
    result = call(data, "backup", "verify")
    assert result.exit_code == 3
    assert f"damaged: {key}: its checksum" in result.stderr
    [found] = json.loads(call(data, "backup", "verify", "--json").stdout)
    assert "checksum" in found["problem"]
    lose_metadata(data)
    refused = call(data, "recover", "--backup", "newest")
    assert refused.exit_code == 1 and "checksum" in refused.stderr


def test_one_that_retention_removes_meanwhile_is_not_missed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = call_json(data, "backup", "create")["key"]
    gone = re.sub(r"\d{8}T\d{6}Z-\d{16}", "20200101T000000Z-0000000000000001", key)
    shutil.copy(snapshot_file(data, key), snapshot_file(data, gone))
    read = Snapshots.read

    async def removed_before_it_is_read(self: Snapshots, name: str) -> Any:
        snapshot_file(data, gone).unlink(missing_ok=True)
        return await read(self, name)

    monkeypatch.setattr(Snapshots, "read", removed_before_it_is_read)
    assert [one["key"] for one in call_json(data, "backup", "verify")] == [key]
    assert call(data, "backup", "verify", gone).exit_code == 2


def test_store_with_other_contents_is_refused_with_a_remedy(data: Path) -> None:
    """--topic would not: it does not go with --backup."""
    key = call_json(data, "backup", "create")["key"]
    result = call(data, "recover", "--backup", key, "--apply")
    assert result.exit_code == 3
    assert "into an empty metadata store only" in result.stderr and "--topic" not in result.stderr


def test_there_is_nothing_to_take_without_a_cluster(tmp_path: Path) -> None:
    result = call(tmp_path, "backup", "create")
    assert result.exit_code == 1 and "metadata.db" in result.stderr
    assert "There are no snapshots" in call(tmp_path, "backup", "list").stdout
    nothing = call(tmp_path, "backup", "verify")
    assert nothing.exit_code == 2 and "no snapshot under kafscale-backups/production/" in nothing.stderr


def test_backup_bucket_is_needed_beside_a_records_bucket(data: Path) -> None:
    result = call(data, "backup", "list", KAFSCALE_S3_BUCKET="records")
    assert result.exit_code == 2
    assert "KAFSCALE_BACKUP_BUCKET is not set" in result.stderr


def test_what_was_lost_comes_back(data: Path) -> None:
    key = call_json(data, "backup", "create")["key"]
    lose_metadata(data)
    plan = call(data, "recover", "--backup", key)
    assert plan.exit_code == 0, plan.output
    assert f"using snapshot {key}, of 20" in plan.stderr
    assert f"From snapshot {key} of 20" in plan.stdout
    assert "the ids and configs of 1 topics, 0 groups, 1 committed offsets, 0 retired names" in plan.stdout
    assert "Not in the snapshot, and so not restored" in plan.stdout
    assert "Consumer groups and committed offsets: groups start" not in plan.stdout
    done = call_json(data, "recover", "--backup", "newest", "--apply")
    assert done["snapshot"]["key"] == key
    [topic] = done["topics"]
    assert topic["topic_id"] == str(ORDERS.topic_id)
    assert [one["log_end_offset"] for one in topic["partitions"]] == [6, 0]
    assert done["rebuilt"]["cluster_id"] == "the-cluster"
    held = asyncio.run(_held(data))
    assert decode_topic_record("", held[keys.topic("orders")]) == ORDERS
    assert keys.group_offset("g", "orders", 0) in held


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backup", "newest"], "no snapshot under kafscale-backups/production/"),
        (["--backup", "kafscale-backups/production/x.kfsnap"], "names no object"),
        (["--backup", "newest", "--topic", "orders"], "--backup is not legal with --topic"),
    ],
)
def test_a_backup_that_cannot_be_used_is_no_rebuild_without_it(
    data: Path, arguments: list[str], says: str
) -> None:
    lose_metadata(data)
    result = call(data, "recover", "--apply", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not asyncio.run(_held(data))


def test_documented_job_names_existing_settings_and_options() -> None:
    page = (Path(__file__).parents[2] / "docs" / "backup.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (job,) = [block for block in blocks if block.get("kind") == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {one["name"] for one in container["env"]} <= {row.variable for row in SETTINGS}
    command, *arguments = container["args"]
    assert main.commands[command].make_context(command, arguments).params["backup"] == "newest"
