"""A pytest plugin (`-p tests.support.cpu_seconds`): the files of a run that need most processor time.

Processor time of the process that ran the test, and of its children: on a busy machine it says more than the clock.
A child counts where it was waited for: a server that several files share counts in the last one. With pytest-xdist
the workers measure and the first process adds up.
"""

import resource
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from _pytest.terminal import TerminalReporter

from tests.support import forked

MOST = 10.0  # CPU seconds of one file in `make test`: what needs more has a long form in `make nightly`
SHOWN = 5
PROPERTY = "cpu_seconds"


class Used(NamedTuple):
    """Processor seconds of a process itself, and of its children that have ended."""

    own: float
    children: float


by_file: dict[str, Used] = defaultdict(lambda: Used(0, 0))


def used() -> Used:
    """The CPU time of this process so far."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = children.ru_utime + children.ru_stime + forked.cpu_of_reaped
    return Used(own.ru_utime + own.ru_stime, ended)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember where each test began."""
    item.stash[_begun] = used()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note in the report of the last phase what all used: the report travels from a worker to the first process."""
    if call.when == "teardown":
        now, begun = used(), item.stash[_begun]
        item.user_properties.append((PROPERTY, (now.own - begun.own, now.children - begun.children)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up by file."""
    path = report.nodeid.partition("::")[0]
    for name, value in report.user_properties:
        if name == PROPERTY:
            assert isinstance(value, tuple | list)  # a worker's tuple arrives as a list
            own, children = value
            by_file[path] = Used(by_file[path].own + own, by_file[path].children + children)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the files above the limit, and at least the first few."""
    if not by_file or terminalreporter.config.getoption("collectonly"):
        return
    own, children = (sum(seconds) for seconds in zip(*by_file.values(), strict=True))
    terminalreporter.section(f"CPU seconds: {own:.0f} in tests, {children:.0f} in their children")
    for number, (path, seconds) in enumerate(sorted(by_file.items(), key=lambda item: -sum(item[1]))):
        if number < SHOWN or sum(seconds) > MOST:
            terminalreporter.line(f"{seconds.own:7.1f} + {seconds.children:.1f}  {path}")


_begun = pytest.StashKey[Used]()
