"""The search for planted mistakes, and the new seeds that it found at the end of a run."""

from collections.abc import Callable

import pytest
from _pytest.terminal import TerminalReporter

from tests.sim.seed_search import SeedSearch, known_seeds

_REMARK = "a seed to keep"


@pytest.fixture
def seed_search(record_property: Callable[[str, object], None]) -> SeedSearch:
    """Starts at known seeds. What it has to say about them stands at the end of the run, xdist's too."""
    return SeedSearch(known_seeds(), lambda remark: record_property(_REMARK, remark))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the seeds to keep."""
    remarks = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == _REMARK
    ]
    if remarks:
        terminalreporter.section("known seeds that no longer find their mistake")
        for remark in dict.fromkeys(remarks):
            terminalreporter.line(remark)
