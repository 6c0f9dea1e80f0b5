"""For all tests: a clean environment, Hypothesis' profile, a fixture for commands, and `--no-skips`."""

import functools
import gc
import logging
import os
from collections.abc import Iterator

import botocore.session
import hypothesis
import pytest
from _pytest.terminal import TerminalReporter

COLLECTOR_THRESHOLDS = (50_000, 10, 10)

pytest.register_assert_rewrite("tests.support.static_membership")  # scenarios that test modules share

# Tests and the processes they start do not see the settings of the caller's shell. At import: before any test
# module, which may read the environment, and in each of xdist's workers.
for _setting in [name for name in os.environ if name.startswith("KAFSCALE_")]:
    if not _setting.startswith("KAFSCALE_TEST_"):
        del os.environ[_setting]

# Each client of S3 in this process would parse the descriptions of the service again.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)

# No deadline: a machine that is busy with other tests is no defect. What fails is printed so that it can be
# repeated; pytest-randomly seeds Hypothesis too and prints that seed in the header.
# A test that gives no number of examples tries a tenth of Hypothesis' own 100 in `make test`.
EXAMPLES = 500 if os.environ.get("KAFSCALE_TEST_NIGHTLY", "") not in ("", "0") else 10
hypothesis.settings.register_profile("kafscale", deadline=None, print_blob=True, max_examples=EXAMPLES)
hypothesis.settings.load_profile("kafscale")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among what is collected: all of it stays, and looking takes a third of the time.

    Nor later, during tests, where it is looked for as seldom as in the broker.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        gc.enable()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests of commands, which configure the logging of their process."""
    root, own = logging.getLogger(), logging.getLogger("kafscale")
    handlers, levels = list(root.handlers), (root.level, own.level)
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


@pytest.fixture(autouse=True)
def own_log_level() -> Iterator[None]:
    """A command that a test runs in this process leaves no level to the tests after it."""
    own = logging.getLogger("kafscale")
    level = own.level
    yield
    own.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--no-skips`."""
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")


def _skipped(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", ())) if isinstance(reporter, TerminalReporter) else 0


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which every test passed but some were skipped."""
    passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if session.config.getoption("no_skips") and passed and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say why such a run failed; the reasons of each skip stand above."""
    skipped = _skipped(config)
    if config.getoption("no_skips") and skipped:
        terminalreporter.section("skipped tests")
        terminalreporter.line(f"{skipped} skipped, which --no-skips counts as failure", red=True)
