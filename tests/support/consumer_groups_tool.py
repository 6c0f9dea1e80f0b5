"""kafka-consumer-groups.sh on one broker, and its tables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.support.group_members import LibrdkafkaMember, Partition
from tests.support.java import ToolResult, ToolServer

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
MISSING = "-"

Row = dict[str, str]

# A name of a column; only COORDINATOR (ID) has a blank in it.
_COLUMN = re.compile(r"#?[A-Z-]+(?: \(ID\))?")
_FIRST_COLUMNS = ("GROUP ", "TOPIC ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupsTool:
    """The tool with `--bootstrap-server` of one broker."""

    server: ToolServer
    bootstrap: str

    def __call__(self, *arguments: str) -> ToolResult:
        return self.server.tool(CONSUMER_GROUPS, "--bootstrap-server", self.bootstrap, *arguments)

    def rows(self, *arguments: str) -> list[Row]:
        """The rows of all tables in its output, in order."""
        return table_rows(self(*arguments).ok())

    def groups(self, *arguments: str) -> dict[str, Row]:
        """`--list` with an option that makes it a table: the row of each group."""
        return {row["GROUP"]: row for row in self.rows("--list", *arguments)}

    def describe(self, group: str, *arguments: str) -> dict[Partition, Row]:
        """`--describe --group`: the row of each partition."""
        return by_partition(self.rows("--describe", "--group", group, *arguments))

    def members(self, group: str, *arguments: str) -> dict[str, Row]:
        """`--describe --members`: the row of each client id."""
        rows = self.rows("--describe", "--group", group, "--members", *arguments)
        found = {row["CLIENT-ID"]: row for row in rows}
        assert len(found) == len(rows), f"several members of one client id: {rows}"
        return found

    def state(self, group: str, *arguments: str) -> Row:
        """`--describe --state`."""
        (row,) = self.rows("--describe", "--group", group, "--state", *arguments)
        return row

    def offsets(self, group: str) -> dict[Partition, int]:
        """The committed offsets in `--describe`; partitions without a commit are not included."""
        shown = {partition: row["CURRENT-OFFSET"] for partition, row in self.describe(group).items()}
        return {partition: int(offset) for partition, offset in shown.items() if offset != MISSING}

    def reset(self, group: str, *arguments: str) -> dict[Partition, int]:
        """`--reset-offsets`: the new offset of each partition."""
        rows = self.rows("--reset-offsets", "--group", group, *arguments)
        assert {row["GROUP"] for row in rows} <= {group}, rows
        return {partition: int(row["NEW-OFFSET"]) for partition, row in by_partition(rows).items()}

    def delete_offsets(self, group: str, *topics: str) -> dict[Partition, str]:
        """`--delete-offsets`: the status of each partition; -1 stands for a topic as a whole."""
        arguments = [part for topic in topics for part in ("--topic", topic)]
        rows = self.rows("--delete-offsets", "--group", group, *arguments)
        return {partition: row["STATUS"] for partition, row in by_partition(rows).items()}


def says_absent(described: ToolResult, group: str) -> bool:
    """True if `--describe` found no such group: an error from DescribeGroups v6 on (KIP-1043), before that Dead."""
    told = described.out + described.err
    named = "GroupIdNotFoundException" in told or f"Consumer group '{group}' does not exist" in told
    return named and not table_rows(described.out)


def by_partition(rows: list[Row]) -> dict[Partition, Row]:
    """The row of each partition; each may occur once."""
    keys = [(row["TOPIC"], -1 if row["PARTITION"] == MISSING else int(row["PARTITION"])) for row in rows]
    assert len(set(keys)) == len(rows), f"a partition twice: {rows}"
    return dict(zip(keys, rows, strict=True))


def table_rows(printed: str) -> list[Row]:
    """The rows of all tables in the tool's output, each with the names of its columns.

    A table is a line of names and the lines below it, up to an empty one. Its cells begin where the names do.
    """
    rows: list[Row] = []
    columns: list[re.Match[str]] = []
    for line in printed.splitlines():
        if line.startswith(_FIRST_COLUMNS):
            columns = list(_COLUMN.finditer(line))
        elif not line.strip():
            columns = []
        elif columns:
            rows.append(_cells(line, columns))
    return rows


def _cells(line: str, columns: list[re.Match[str]]) -> Row:
    starts = [column.start() for column in columns]
    for start in starts[1:]:
        assert line[start - 1 : start] in (" ", ""), f"a cell is wider than its column: {line!r}"
    ends = [*starts[1:], None]
    return {
        column.group(): line[start:end].strip()
        for column, start, end in zip(columns, starts, ends, strict=True)
    }


def commit_offsets(broker: Any, group: str, offsets: Mapping[Partition, int], metadata: str = "") -> None:
    """Commit offsets as a consumer that is no member of the group (generation -1)."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        rows = [TopicPartition(*partition, offset, metadata) for partition, offset in offsets.items()]
        for answer in consumer.commit(offsets=rows, asynchronous=False):
            assert answer.error is None, f"{answer}: {answer.error}"
    finally:
        consumer.close()


def quiet_member(broker: Any, group: str, *topics: str, **settings: Any) -> LibrdkafkaMember:
    """A member that commits only on demand."""
    return LibrdkafkaMember(broker.bootstrap, group, *topics, enable_auto_commit=False, **settings)
