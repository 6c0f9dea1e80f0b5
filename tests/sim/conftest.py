"""The search for planted mistakes, and the new seeds that it found at the end of a run.

With KAFSCALE_TEST_KEEP_SEEDS=1 they are written into the file.
"""

import os
from collections.abc import Callable

import pytest
from _pytest.terminal import TerminalReporter

from tests.sim.seed_search import SeedSearch, keep_seeds, known_seeds

_REMARK = "a seed to keep"


@pytest.fixture
def seed_search(record_property: Callable[[str, object], None]) -> SeedSearch:
    """Starts at known seeds. What it has to say about them stands at the end of the run, xdist's too."""

    def found(name: str, seed: int, remark: str) -> None:
        record_property(_REMARK, (name, seed, remark))

    return SeedSearch(known_seeds(), found)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the seeds to keep, or keep them."""
    found = [
        value  # from a worker of xdist the tuple comes as a list
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == _REMARK and isinstance(value, tuple | list)
    ]
    if found:
        terminalreporter.section("known seeds that no longer find their mistake")
        for remark in dict.fromkeys(remark for _, _, remark in found):
            terminalreporter.line(remark)
        if os.environ.get("KAFSCALE_TEST_KEEP_SEEDS", "") not in ("", "0"):
            keep_seeds({name: seed for name, seed, _ in found})
            terminalreporter.line("all of them are written")
