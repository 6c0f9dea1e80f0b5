"""The reason that a client logs, where all that it raises is that no broker could be reached."""

import contextlib
import logging
import re
from collections.abc import Iterator

NOT_AUTHORIZED = "is not authorized for this client"
REASONS = re.compile(
    f"SaslAuthenticationFailed|UnsupportedSaslMechanism|CERTIFICATE_VERIFY_FAILED|TLS alert|{NOT_AUTHORIZED}"
)
_ALERT = re.compile(r"(TLSV\d+|SSLV3)_ALERT_\w+")  # which one is sent is the TLS library's choice


def find_reasons(text: str) -> list[str]:
    """All reasons in a text."""
    return REASONS.findall(_ALERT.sub("TLS alert", text))


class Reasons(logging.Handler):
    """The reasons found in what was logged, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Look into one line."""
        self.found += find_reasons(record.getMessage())


@contextlib.contextmanager
def reasons(logger: str) -> Iterator[Reasons]:
    """Watch a logger for the time of the block."""
    handler = Reasons()
    log = logging.getLogger(logger)
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
