"""The token that a request for the metrics must have."""

import hmac
import logging
from pathlib import Path
from typing import Final

_logger = logging.getLogger(__name__)

MAX_TOKEN_BYTES: Final = 4096
_SCHEME: Final = "bearer"


class MetricsToken:
    """A token in a file. It is read for each request, so that it can be changed at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def admits(self, authorization: str | None) -> bool:
        """True if the header is `Bearer` and the token. Reads a small file; without a token nothing is admitted."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME or not given.strip():
            return False
        try:
            with self._path.open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES).strip()
        except OSError as error:
            _logger.warning("the token for metrics cannot be read", extra={"error": str(error)})
            return False
        return bool(token) and hmac.compare_digest(token, given.strip().encode("utf-8", "replace"))
