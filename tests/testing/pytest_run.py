"""Runs pytest with Kafscale's plugin in a process of its own, as where Kafscale is installed."""

from importlib.metadata import entry_points

import pytest

from tests.support.waiting import PATIENCE_SEC

PLUGIN = "kafscale.testing.plugin"
_IS_INSTALLED = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))
_INI = """[pytest]
filterwarnings =
    error
    ignore:(read|open)_text is deprecated:DeprecationWarning
    ignore:Module already imported so cannot be rewritten
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the tests in pytester's folder; warnings are errors, but for those of kafka-python when it is imported."""
    pytester.makeini(_INI)
    # An installation from before the plugin does not know it; to name it twice is an error.
    ours = () if _IS_INSTALLED else ("-p", PLUGIN)
    command = ("-p", "no:randomly", "-p", "no:cacheprovider", "-q", *ours, *arguments)
    return pytester.runpytest_subprocess(*command, timeout=PATIENCE_SEC)
