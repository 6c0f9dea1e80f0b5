"""A pytest plugin (`-p tests.support.cpu_seconds`): the files of a run that need most processor time.

Processor time of the process that ran the test and of the children it waited for: on a busy machine it says more
than the clock. With pytest-xdist the workers measure and the first process adds up.
"""

import resource
from collections import defaultdict
from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter

MOST = 10.0  # CPU seconds of one file in `make test`: what needs more has a long form in `make nightly`
SHOWN = 5
PROPERTY = "cpu_seconds"

by_file: dict[str, float] = defaultdict(float)


def used() -> float:
    """Processor seconds of this process so far, with those of its children that ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember where each test began."""
    item.stash[_begun] = used()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note in the report of a phase what it used: the report travels from a worker to the first process."""
    now = used()
    spent, item.stash[_begun] = now - item.stash[_begun], now
    item.user_properties[:] = [one for one in item.user_properties if one[0] != PROPERTY]
    item.user_properties.append((PROPERTY, spent))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up by file."""
    by_file[report.nodeid.partition("::")[0]] += sum(
        float(value)
        for name, value in report.user_properties
        if name == PROPERTY and isinstance(value, float)
    )


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the files above the limit, and at least the first few."""
    if not by_file or terminalreporter.config.getoption("collectonly"):
        return
    terminalreporter.section(f"CPU seconds: {sum(by_file.values()):.0f} in all")
    for number, (path, seconds) in enumerate(sorted(by_file.items(), key=lambda item: -item[1])):
        if number < SHOWN or seconds > MOST:
            terminalreporter.line(f"{seconds:7.1f}  {path}")


_begun = pytest.StashKey[float]()
