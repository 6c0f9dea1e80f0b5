"""`kafscale export`: the parts put together, and run."""

import contextlib
import json
import os
import time
from collections.abc import Callable

from kafscale.commands.export_options import ExportOptions
from kafscale.commands.export_rounds import ExportRounds, find_topics
from kafscale.lake.config_topics import FoundTopics
from kafscale.lake.events import EveryListener
from kafscale.lake.export_metrics import ExportMetrics
from kafscale.lake.iceberg.advised_report import AdvisedReport
from kafscale.lake.iceberg.catalogs import CatalogChoice, choose_catalog
from kafscale.lake.metrics_output import read_metrics_file, served_metrics, write_metrics_file
from kafscale.lake.report import ExportReport
from kafscale.lake.stop_signals import stopped_by_signals
from kafscale.settings.broker import Settings

EXIT_FAILED = 1


def run(
    settings: Settings,
    options: ExportOptions,
    output: Callable[[str], None],
    errors: Callable[[str], None],
) -> int:
    """Export the topics; the exit status. Raises `SettingError` for options that are not legal, before any work.

    Progress goes to `errors`, the summary to `output`.
    """
    choice = choose_catalog(options.to, options.catalog, options.catalog_properties, settings, os.environ)
    report = AdvisedReport(_quiet if options.is_quiet else errors, time.monotonic)
    metrics = ExportMetrics(time.time)
    if options.metrics_file is not None:
        read_metrics_file(metrics, options.metrics_file)
    found = find_topics(settings, options, choice.name)
    if not (found.topics or found.problems):
        report.say("no topic is switched on (kafscale.iceberg.enable)")
    succeeded = _export(settings, options, choice, found, report, metrics, errors)
    if options.metrics_file is not None:
        write_metrics_file(metrics, options.metrics_file)
    if options.as_json:
        output(json.dumps(report.summary_fields(), indent=2))
    elif not options.is_quiet:
        output(report.summary_text())
    else:
        for topic, problem in report.failures.items():
            errors(f"{topic}: FAILED: {problem}")
    return 0 if succeeded else EXIT_FAILED


def _export(
    settings: Settings,
    options: ExportOptions,
    choice: CatalogChoice,
    found: FoundTopics,
    report: ExportReport,
    metrics: ExportMetrics,
    errors: Callable[[str], None],
) -> bool:
    with contextlib.ExitStack() as stack:
        if options.metrics_addr is not None:
            stack.enter_context(served_metrics(metrics, options.metrics_addr))
        rounds = ExportRounds(settings, options, choice, found, EveryListener(report, metrics))
        stack.enter_context(stopped_by_signals(rounds.stop, errors))
        return rounds.run()


def _quiet(_: str) -> None:
    """Drops the line."""
