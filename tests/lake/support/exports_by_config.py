"""`kafscale export --topics-by-config` in the test's own process, and its cuts."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kafscale.commands.cli import main
from kafscale.lake.export_state import CUT_PROPERTY
from kafscale.settings.broker import Settings
from tests.lake.support.exporter import folder_catalog
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.read_back import open_table, read_table, table_exists

Row = tuple[str, int, int]


class Exports:
    """`kafscale export` of all topics that are switched on, again and again."""

    def __init__(self, settings: Settings, topics: Iterable[str], folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.catalog = folder_catalog(folder)
        self.names = sorted(topics)

    def run(self, *more: str, command: str = "export", status: int = 0) -> str:
        arguments = [command, "--topics-by-config", "--to", str(self.folder), *more]
        done = CliRunner().invoke(main, arguments, env=store_environment(self.settings))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == status, done.output
        return done.output

    def rows(self, snapshots: dict[str, int] | None = None) -> list[dict[str, Any]]:
        """Of all tables, as of these snapshots."""
        found: list[dict[str, Any]] = []
        for topic in self.names:
            name = f"local.kafka.{topic}"
            if not table_exists(self.catalog, name):
                continue
            if snapshots is None:
                found += read_table(self.catalog, name).rows
            elif topic in snapshots:
                with open_table(self.catalog, name) as table:
                    found += table.scan(snapshot_id=snapshots[topic]).to_arrow().to_pylist()
        return sorted(found, key=place_of)

    def places(self, snapshots: dict[str, int] | None = None) -> set[Row]:
        found = [place_of(row) for row in self.rows(snapshots)]
        assert len(found) == len(set(found)), "a record is there twice"
        return set(found)

    def snapshots(self, topic: str) -> list[tuple[int, dict[str, Any] | None]]:
        """The table's snapshots in order, each with its cut."""
        name = f"local.kafka.{topic}"
        if not table_exists(self.catalog, name):
            return []
        with open_table(self.catalog, name) as table:
            found = []
            for one in table.metadata.snapshots:
                assert one.summary is not None
                cut = one.summary.additional_properties.get(CUT_PROPERTY)
                found.append((one.snapshot_id, None if cut is None else json.loads(cut)))
            return found

    def complete_cuts(self) -> Iterator[dict[str, int]]:
        """For each cut that is in all of its tables: the snapshots that show all tables as of it."""
        history = {topic: self.snapshots(topic) for topic in self.names}
        cuts = {
            cut["revision"]: cut for snapshots in history.values() for _, cut in snapshots if cut is not None
        }
        for revision in sorted(cuts):
            wanted = cuts[revision]
            if all(
                any(cut is not None and cut["cut_id"] == wanted["cut_id"] for _, cut in history[topic])
                for topic in wanted["tables"]
            ):
                yield {
                    topic: [number for number, cut in snapshots if cut and cut["revision"] <= revision][-1]
                    for topic, snapshots in history.items()
                    if any(cut and cut["revision"] <= revision for _, cut in snapshots)
                }


def place_of(row: dict[str, Any]) -> Row:
    return row["topic"], row["partition"], row["offset"]
