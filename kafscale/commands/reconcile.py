"""`kafscale reconcile`: the parts put together, and run."""

import json
import os
import time
from collections.abc import Callable

from kafscale.commands.export_tables import table_identifiers
from kafscale.commands.reconcile_command import ReconcileArguments
from kafscale.lake.iceberg.catalogs import choose_catalog
from kafscale.lake.iceberg.open_catalog import opened_catalog
from kafscale.lake.iceberg.reconciler import ReconcileOptions, Reconciler, TopicSide
from kafscale.lake.iceberg.records import FreeTopic
from kafscale.lake.iceberg.tables import TableStore
from kafscale.lake.iceberg.topic_table import TopicTables
from kafscale.lake.reconciling.report import as_fields, as_text
from kafscale.lake.report import PROGRESS_SEC
from kafscale.ops.report_text import PacedLines
from kafscale.settings.broker import Settings

EXIT_DIFFERENT = 3


def run(
    settings: Settings,
    arguments: ReconcileArguments,
    output: Callable[[str], None],
    errors: Callable[[str], None],
) -> int:
    """Compare; the exit status. Progress goes to `errors`, the result to `output`.

    Raises `SettingError` for options that are not legal and tables that cannot be compared, `LakeError`, and the
    stores' errors.
    """
    choice = choose_catalog(
        arguments.to, arguments.catalog, arguments.catalog_properties, settings, os.environ
    )
    rows, letters = table_identifiers(
        arguments.topic, arguments.table, arguments.dead_letter_table, choice.name
    )
    tables = TopicTables(catalog=choice.name, rows=rows, dead_letters=letters)
    topic = FreeTopic(settings, arguments.topic)
    lines = PacedLines((lambda _: None) if arguments.is_quiet else errors, time.monotonic, PROGRESS_SEC)
    options = ReconcileOptions(
        range_size=arguments.range_size,
        except_columns=arguments.except_columns,
        skips_expired=arguments.skips_expired,
    )
    side = TopicSide(log=topic.log, records=topic.records)
    with opened_catalog(choice, creates=False) as catalog:
        found = Reconciler(TableStore(catalog), arguments.topic, tables, options, side, lines.say).run()
    if arguments.as_json:
        output(json.dumps({"agrees": found.agrees, "topics": [as_fields(found)]}, indent=2))
    else:
        output(as_text(found, shows_all=arguments.shows_all_ranges))
    return 0 if found.agrees else EXIT_DIFFERENT
