"""`kafscale cost`: what requests and storage cost, from the metrics of brokers."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

from kafscale.commands.cost_report import as_object, as_text, warnings
from kafscale.commands.running import EXIT_SETTINGS, EXIT_STARTUP, echo_error
from kafscale.errors import KafscaleError
from kafscale.settings.broker import load_settings
from kafscale.settings.kinds import is_wildcard
from kafscale.tools.cost.intervals import USUAL_BUDGETS, USUAL_INTERVALS_MS, flush_costs
from kafscale.tools.cost.rates import Rates, rates
from kafscale.tools.cost.scrape import Scrape
from kafscale.tools.cost.sources import Source, names, read_all, source_of

EXIT_DONE: Final = 0
EXIT_INTERRUPTED: Final = 130

_STEP_SEC: Final = 10.0


@dataclass(frozen=True, slots=True)
class CostOptions:
    """The options of the command line."""

    sources: tuple[str, ...]
    seconds: float
    earlier: tuple[str, ...]
    intervals_ms: tuple[int, ...]
    budgets: tuple[float, ...]
    as_json: bool


def run(options: CostOptions, environment: Mapping[str, str]) -> int:
    """Print the report; returns the exit status."""
    try:
        named = [source_of(text) for text in options.sources] or [_own_broker(environment)]
        older = [Source(path, is_file=True) for path in options.earlier]
    except KafscaleError as error:
        echo_error(str(error))
        return EXIT_SETTINGS
    try:
        found = _measured(named, older, options.seconds)
    except KafscaleError as error:
        echo_error(str(error))
        return EXIT_STARTUP
    except KeyboardInterrupt:
        echo_error("interrupted before the second scrape; a smaller --seconds takes less time")
        return EXIT_INTERRUPTED
    for line in warnings(found):
        echo_error(line)
    now_ms = round(found.flush_interval_sec * 1000)
    named_any = options.intervals_ms or options.budgets
    intervals = options.intervals_ms if named_any else USUAL_INTERVALS_MS
    budgets = options.budgets if named_any else USUAL_BUDGETS
    flushes = flush_costs(found, (*intervals, *([now_ms] if now_ms else [])), budgets)
    click.echo(json.dumps(as_object(found, flushes)) if options.as_json else as_text(found, flushes))
    return EXIT_DONE


def _own_broker(environment: Mapping[str, str]) -> Source:
    """The broker that the settings describe. Raises `SettingError`."""
    address = load_settings(environment).metrics_addr
    host = address.host
    if is_wildcard(host):
        host = "[::1]" if ":" in host else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return Source(f"http://{host}:{address.port}/metrics", is_file=False)


def _measured(named: list[Source], older: list[Source], seconds: float) -> Rates:
    """The rates between two scrapes. Raises `ScrapeError`."""
    before = read_all(older)
    running = [source for source in named if not source.is_file]
    if running and seconds:
        before += _before(running, seconds)
    return rates(before, read_all(named))


def _before(running: list[Source], seconds: float) -> list[Scrape]:
    """The first scrapes of brokers, so many seconds ago when this returns."""
    scrapes = read_all(running)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if sys.stderr.isatty() or left > _STEP_SEC:
            echo_error(f"measuring {names(running)}: {left:.0f} s left")
        time.sleep(min(left, _STEP_SEC))
    return scrapes
