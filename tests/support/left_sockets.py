"""For tests with consumers of kafka-python, which now and then leave a socket open when they are closed."""

import gc
import warnings
from collections.abc import Iterator

import pytest

# Seen when a heartbeat is under way at that moment (3.0.12): it connects once more. The collector closes it.
IGNORED_WHILE_THEY_RUN = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def left_sockets_are_collected() -> Iterator[None]:
    """At the end of a module, so that no later test is blamed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
