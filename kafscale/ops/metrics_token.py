"""The token that a request for the metrics must have."""

import base64
import binascii
import hmac
import logging
from pathlib import Path
from typing import Final

_logger = logging.getLogger(__name__)

MAX_TOKEN_BYTES: Final = 4096
_BEARER: Final = "bearer"
_BASIC: Final = "basic"


class MetricsToken:
    """A token in a file. It is read for each request, so that it can be changed at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def admits(self, authorization: str | None) -> bool:
        """True if the header is `Bearer` and the token. Reads a small file; without a token nothing is admitted."""
        scheme, given = _divided(authorization)
        return scheme == _BEARER and self._is(given.encode("utf-8", "replace"))

    def admits_browser(self, authorization: str | None) -> bool:
        """The same, or `Basic` with any name and the token as password: browsers ask people for these."""
        scheme, given = _divided(authorization)
        if scheme != _BASIC:
            return self.admits(authorization)
        try:
            _, colon, password = base64.b64decode(given, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        return bool(colon) and self._is(password)

    def _is(self, given: bytes) -> bool:
        if not given:
            return False
        try:
            with self._path.open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES).strip()
        except OSError as error:
            _logger.warning("the token for metrics cannot be read", extra={"error": str(error)})
            return False
        return bool(token) and hmac.compare_digest(token, given)


def _divided(authorization: str | None) -> tuple[str, str]:
    """The scheme, in lower case, and what is behind it."""
    scheme, _, given = (authorization or "").partition(" ")
    return scheme.lower(), given.strip()
