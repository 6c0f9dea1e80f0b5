"""Shows the brokers' logs where a test failed; a folder's conftest takes the hook from here."""

from collections.abc import Generator

import pytest

from tests.support.process import ServerProcess


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of every running server's log to a failure's report."""
    report = yield
    if report.failed:
        for server in ServerProcess.started:
            report.sections.append((f"log of {server.name}", server.log_tail()))
    return report
