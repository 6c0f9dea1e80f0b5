"""Write the tables that documents share with the code: `python -m scripts.generate_docs`.

A document marks the place with `<!-- begin NAME -->` and `<!-- end NAME -->`, each on a line of its own; a
test fails when what stands between them is not what the code says. The pictures, the types of messages and some files
of the chart are written whole.
"""

import sys
from collections.abc import Callable, Iterable

import click

from kafscale.cluster.topic_config_table import TOPIC_CONFIGS
from kafscale.commands.export_command import export as iceberg_export
from kafscale.commands.reconcile_command import reconcile as iceberg_reconcile
from kafscale.handlers.needs import Open
from kafscale.handlers.route import Route
from kafscale.handlers.routes import ROUTES
from kafscale.lake import metric_families as export_metric_families
from kafscale.operator import metric_families as operator_metric_families
from kafscale.ops.metric_families import FAMILIES, Family
from kafscale.settings.broker import SETTINGS
from scripts import scale, sizing
from scripts.alert_table import alert_rows
from scripts.chart_files import written_files
from scripts.chart_values import documented_values
from scripts.document_table import table
from scripts.extras_table import extras_rows
from scripts.format_users import format_users
from scripts.message_types import PATH as MESSAGE_TYPES
from scripts.message_types import message_types
from scripts.pictures.files import picture_files
from scripts.price_lists import PRICE_COLUMNS, price_rows
from scripts.project import ROOT
from scripts.resource_tables import cluster_fields, export_fields, topic_fields, user_fields
from scripts.state_tables import (
    group_events_table,
    group_states_drawing,
    leadership_drawing,
    leadership_events_table,
    leadership_rights_table,
    transaction_states_table,
)
from spark_jobs import export, maintain, reconcile
from spark_jobs.source.option_rows import KAFKA_HINT, REFUSED, SOURCE_OPTIONS, STORE_OPTIONS


def settings_table() -> str:
    """Every setting, in the order of the settings table."""
    return table(
        ("Setting", "Default", "Meaning", "Legal"),
        ((f"`{row.variable}`", _default(row.default), row.documentation, row.kind.legal) for row in SETTINGS),
    )


def _default(text: str) -> str:
    return text if " " in text else f"`{text}`"


def metrics_table() -> str:
    """Every metric of the broker, in the order of the export."""
    return _metrics_table(FAMILIES)


def export_metrics_table() -> str:
    """Every metric of the lake export, in order."""
    return _metrics_table(export_metric_families.FAMILIES)


def _metrics_table(families: Iterable[Family]) -> str:
    return table(
        ("Metric", "Type", "Labels", "Meaning"),
        (
            (
                f"`{row.name}`",
                row.type.value,
                " ".join(f"`{label}`" for label in row.labels),
                row.documentation,
            )
            for row in families
        ),
    )


def supported_apis_table() -> str:
    """Every API that the broker serves, by key."""
    return table(
        ("Key", "API", "Versions"),
        (
            (str(int(route.api)), route.api.api_name, f"{route.min_version}-{route.max_version}")
            for route in sorted(ROUTES, key=lambda route: route.api)
        ),
    )


def needs_table() -> str:
    """The access that each API needs a client to have, by name."""
    return table(
        ("API", "Resource", "Operation", "When"),
        (row for route in sorted(ROUTES, key=lambda route: route.api.api_name) for row in _needs_rows(route)),
    )


def _needs_rows(route: Route) -> Iterable[tuple[str, str, str, str]]:
    name = route.api.api_name
    if isinstance(route.needs, Open):
        return [(name, "", "none", route.needs.reason)]
    return [
        (
            name if number == 0 else "",
            need.resource_type.name.replace("_", " ").capitalize(),
            "".join(word.capitalize() for word in need.operation.name.split("_")),
            need.when,
        )
        for number, need in enumerate(route.needs)
    ]


def topic_configs_table() -> str:
    """Every topic config, by name."""
    return table(
        ("Config", "Type", "Default", "Effect", "Meaning", "Legal"),
        (
            (
                f"`{row.name}`",
                row.kind.config_type.name.lower(),
                "from the settings" if row.setting else f"`{row.default}`" if row.default else "empty",
                "yes" if row.has_effect else "none",
                row.documentation,
                row.kind.legal,
            )
            for row in TOPIC_CONFIGS
        ),
    )


def source_options_table() -> str:
    """Every option of the Spark source that selects what it reads, and how."""
    return table(
        ("Option", "Value", "Default", "Queries", "Meaning"),
        (
            (f"`{row.name}`", row.legal, _default(row.default), row.queries, row.meaning)
            for row in SOURCE_OPTIONS
        ),
    )


def store_options_table() -> str:
    """The short names of settings that locate the topics."""
    settings = {row.variable: row for row in SETTINGS}
    return table(
        ("Option", "Setting", "Default", "Meaning", "Legal"),
        (
            (
                f"`{row.name}`",
                f"`{row.variable}`",
                _default(settings[row.variable].default),
                settings[row.variable].documentation,
                settings[row.variable].kind.legal,
            )
            for row in STORE_OPTIONS
        ),
    )


def command_options_table(command: click.Command) -> str:
    """Every option of a command, from its `--help`."""
    options = [one for one in command.params if isinstance(one, click.Option) and one.name != "help"]
    return table(("Option", "Default", "Meaning"), map(_command_option, options))


def _command_option(option: click.Option) -> tuple[str, str, str]:
    context = click.Context(click.Command("any"), show_default=True)
    written = "/".join((*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    default = option.get_help_extra(context).get("default", "").removeprefix("(").removesuffix(")")
    if option.required:
        default = "required"
    return f"`{written}{value}`", _default(default) if default else "", option.help or ""


def refused_options_table() -> str:
    """Options of Spark's own Kafka source that have no effect here."""
    rows = [(f"`{name}`", hint) for name, hint in REFUSED.items()]
    return table(("Option", "Instead"), (*rows, ("every other `kafka.*`", KAFKA_HINT)))


def chart_values_table() -> str:
    """Every value of the chart, in the order of values.yaml."""
    return table(
        ("Value", "Default", "Meaning"),
        ((f"`{one.path}`", f"`{one.default}`", one.documentation) for one in documented_values()),
    )


def _fields_table(fields: Iterable[tuple[str, ...]]) -> str:
    return table(("Field", "Type", "Default", "Meaning", "Legal"), fields)


def format_users_table() -> str:
    """Each module of a stored format and the modules that import it."""
    users = format_users(ROOT, ("kafscale", "spark_jobs", "scripts"))
    return table(
        ("`kafscale/formats/`", "Used by"),
        (
            (f"`{module}.py`", ", ".join(f"`{path.removeprefix('kafscale/')}`" for path in paths))
            for module, paths in users.items()
        ),
    )


GENERATED: dict[str, dict[str, Callable[[], str]]] = {
    "deploy/helm/kafscale/README.md": {"values": chart_values_table},
    "docs/alerts.md": {"alerts": lambda: table(("Alert", "Severity", "After"), alert_rows())},
    "docs/cluster.md": {
        "leadership-states": leadership_drawing,
        "leadership-rights": leadership_rights_table,
        "leadership-events": leadership_events_table,
    },
    "docs/code-paths.md": {"format-users": format_users_table},
    "docs/consumer-groups.md": {"group-states": group_states_drawing, "group-events": group_events_table},
    "docs/transactions.md": {"transaction-states": transaction_states_table},
    "docs/custom-resources.md": {
        "cluster-fields": lambda: _fields_table(cluster_fields()),
        "topic-fields": lambda: _fields_table(topic_fields()),
        "user-fields": lambda: _fields_table(user_fields()),
        "export-fields": lambda: _fields_table(export_fields()),
    },
    "docs/export-without-spark.md": {
        "iceberg-export-options": lambda: command_options_table(iceberg_export),
        "iceberg-reconcile-options": lambda: command_options_table(iceberg_reconcile),
    },
    "docs/exports-metrics.md": {"export-metrics": export_metrics_table},
    "docs/kubernetes.md": {"operator-metrics": lambda: _metrics_table(operator_metric_families.FAMILIES)},
    "docs/lake-export.md": {
        "export-options": lambda: command_options_table(export.main),
        "maintain-options": lambda: command_options_table(maintain.main),
    },
    "docs/operations.md": {"metrics": metrics_table},
    "docs/reconcile.md": {"reconcile-options": lambda: command_options_table(reconcile.main)},
    "docs/scale.md": {
        "loads": lambda: table(
            (
                "GB/s",
                "Busy partitions",
                "Interval, ms",
                "Brokers",
                "Entries a second",
                "PUTs a second",
                "Dollars a month",
                "Cores",
                "Brokers by CPU",
                "etcds",
                "GiB",
            ),
            scale.load_rows(),
        ),
        "targets": lambda: table(("Share of", *(one.name for one in scale.TARGETS)), scale.target_rows()),
        "brokers": lambda: table(
            (
                "Brokers",
                "Partitions",
                "Who leads, s",
                "Held up, s",
                "Claims",
                "Events to all",
                "etcd, s of CPU",
                "Each broker, s of CPU",
                "Rolling restart, s",
                "Keep-alives a second, of an etcd core",
            ),
            scale.broker_rows(),
        ),
        "partitions": lambda: table(
            (
                "Partitions",
                "Metadata, MB",
                "First Metadata, ms",
                "View at start, s",
                "Memory, MB",
                "Records in etcd, MB",
            ),
            scale.partition_rows(),
        ),
    },
    "docs/cost.md": {"prices": lambda: table(PRICE_COLUMNS, price_rows())},
    "docs/settings.md": {"settings": settings_table},
    "docs/sizing.md": {
        "requests": lambda: table(
            (
                "Interval, ms",
                "Flushes a second",
                "Entries a second",
                "Entries, $",
                "Sealing, $",
                "Merging and lists, $",
                "Together, $",
                "With readers everywhere, $",
                "Journals in S3 Express, $",
            ),
            sizing.request_rows(),
        ),
        "rates": lambda: table(
            ("Written to", "Segments a day", "PUTs a day", "Dollars a month"), sizing.rate_rows()
        ),
        "clusters": lambda: table(
            (
                "Busy partitions",
                "MB/s in all",
                "Brokers",
                "Entries a second",
                "Entries, $",
                "Sealing, $",
                "Merging and lists, $",
                "Requests together, $",
                "GB stored for 7 days",
                "Storage, dollars a month",
            ),
            sizing.cluster_rows(),
        ),
        "etcd": lambda: table(
            ("Partitions", "Records a second", "GiB at 10 min", "GiB at 2 min", "GiB at 1 min"),
            sizing.etcd_rows(),
        ),
        "records": lambda: table(("Segments", "Producers", "Bytes"), sizing.record_rows()),
        "memory": lambda: table(("Setting", "Default, MiB"), sizing.memory_rows()),
    },
    "docs/install.md": {"extras": lambda: table(("Command", "Brings", "For"), extras_rows())},
    "docs/spark-source.md": {
        "source-options": source_options_table,
        "store-options": store_options_table,
        "refused-options": refused_options_table,
    },
    "docs/security.md": {"needs": needs_table},
    "docs/supported-apis.md": {"apis": supported_apis_table},
    "docs/topic-configs.md": {"topic-configs": topic_configs_table},
}


def filled(text: str, name: str, content: str) -> str:
    """`text` with `content` between the marks of `name`. Raises `ValueError` when there are none."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"there is no <!-- begin {name} --> with an end")
    return f"{before}{begin}\n{content}\n\n{end}{after}"


def generated(document: str) -> str:
    """The document with its generated parts."""
    text = (ROOT / document).read_text()
    for name, content in GENERATED[document].items():
        text = filled(text, name, content())
    return text


def whole_files() -> dict[str, Callable[[], str]]:
    """Every file that is generated whole: its path in the project, and what makes its content."""
    return written_files() | picture_files() | {MESSAGE_TYPES: message_types}


def main() -> int:
    """Rewrite every document that has generated parts, and every file that is generated whole."""
    for document in GENERATED:
        (ROOT / document).write_text(generated(document))
    for path, content in whole_files().items():
        (ROOT / path).write_text(content())
    return 0


if __name__ == "__main__":
    sys.exit(main())
