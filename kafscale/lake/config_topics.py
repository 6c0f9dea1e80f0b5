"""The topics that their configs switch on (`kafscale.iceberg.*`), their tables, and what they ask for. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.cluster.iceberg_configs import TABLE, IcebergConfig, iceberg_config, is_switched_on
from kafscale.errors import SettingError
from kafscale.lake.batch_plan import GapPolicy
from kafscale.lake.offset_points import LogEdge, OffsetPoint
from kafscale.lake.table_names import TableName, Tables, parse_table_name, tables_of
from kafscale.metadata.model import TopicRecord

_TOPIC: Final = "{topic}"
_ENDS: Final = {"earliest": LogEdge.EARLIEST, "latest": LogEdge.LATEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """The options that name tables. `namespaces`: where topics may have theirs besides that of `table`."""

    table: str
    dead_letter_table: str = "{table}_dead_letters"
    namespaces: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToExport:
    """One topic's tables. `config`: what its configs say, nothing unless the export follows them."""

    tables: Tables
    config: IcebergConfig = field(default_factory=IcebergConfig)

    def start(self, option: OffsetPoint) -> OffsetPoint:
        """Where the export begins; `option`: of the command line, as below."""
        return _ENDS[self.config.starting_offsets] if self.config.starting_offsets else option

    def gap_policy(self, option: GapPolicy) -> GapPolicy:
        """How to go on after records that expired first."""
        return GapPolicy(self.config.on_expired) if self.config.on_expired else option


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopics:
    """The topics of a round by name, and for those that cannot be exported the reason."""

    topics: Mapping[str, TopicToExport]
    problems: Mapping[str, str] = field(default_factory=dict)


def topics_by_config(
    records: Iterable[TopicRecord], rule: TableRule, wants: Callable[[str], bool] = lambda _: True
) -> FoundTopics:
    """The topics that are switched on and wanted.

    One whose configs are not legal, or whose table another topic has, is a problem of its own: the others are
    exported. A table may be shared if all its topics name it.
    """
    found: dict[str, TopicToExport] = {}
    problems: dict[str, str] = {}
    for record in sorted(records, key=lambda one: one.name):
        if not is_switched_on(record.configs) or not wants(record.name):
            continue
        try:
            config = iceberg_config(record.configs)
            found[record.name] = TopicToExport(tables=_tables(record.name, config, rule), config=config)
        except (SettingError, ValueError) as problem:
            problems[record.name] = str(problem)
    for topic, why in _in_each_others_way(found, rule):
        del found[topic]
        problems[topic] = why
    return FoundTopics(topics=found, problems=problems)


def _tables(topic: str, config: IcebergConfig, rule: TableRule) -> Tables:
    """Raises `SettingError`."""
    if config.table is None:
        return tables_of([topic], rule.table, rule.dead_letter_table)[topic]
    by_rule = parse_table_name("--table", rule.table.replace(_TOPIC, topic.replace(".", "_")))
    *namespace, name = config.table.split(".")
    own = TableName(catalog=by_rule.catalog, namespace=tuple(namespace) or by_rule.namespace, table=name)
    allowed = [".".join(by_rule.namespace), *rule.namespaces]
    if ".".join(own.namespace) not in allowed:
        raise SettingError(
            f"topic config {TABLE}={config.table!r} is not legal here: its namespace must be one of "
            f"{', '.join(allowed)}, or the export has to allow it by --table-namespace"
        )
    return tables_of([topic], str(own), rule.dead_letter_table)[topic]


def _in_each_others_way(found: Mapping[str, TopicToExport], rule: TableRule) -> Iterable[tuple[str, str]]:
    """Topics that may not have their tables. The first topic to which the rule gives a table has it."""
    has_rule = _TOPIC in rule.table
    owners: dict[str, str] = {}
    for topic, one in found.items():
        if one.config.table is None and has_rule:
            owners.setdefault(one.tables.rows, topic)
    for topic, one in list(found.items()):
        owner = owners.get(one.tables.rows, topic)
        if owner != topic:
            yield topic, f"table {one.tables.rows} is that of topic {owner!r}: set {TABLE} to another"
