"""For tests with clients that now and then leave a socket open, which the collector closes."""

import gc
import warnings
from collections.abc import Iterator

import pytest

# A kafka-python consumer that is closed while a heartbeat is in flight (3.0.12) connects once more.
IGNORED_WHILE_THEY_RUN = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

# urllib3 (2.8) whose server ends between the connection and the handshake of TLS.
IGNORED_WHEN_A_SERVER_ENDS = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def left_sockets_are_collected() -> Iterator[None]:
    """At the end of a module, so that no later test is blamed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
