"""The key set (JWKS, RFC 7517) of tokens' issuers: read from a URL or a file, again and again, off the event loop."""

import asyncio
import http.client
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet, import_key

from kafscale.errors import KafscaleError
from kafscale.masking import without_credentials
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 1024 * 1024
MAX_KEYS: Final = 100
TIMEOUT_SEC: Final = 10.0
MIN_INTERVAL_SEC: Final = 10.0
"""Between two readings because of an unknown key: untrusted clients choose the names of keys."""
RETRY_SEC: Final = 10.0
"""Between two readings on schedule after one that failed."""

_SHOWN_CHARACTERS: Final = 300


class KeySetError(KafscaleError):
    """The keys cannot be read now."""


def parse_key_set(data: bytes) -> KeySet:
    """The public signing keys of a set. Those that cannot be read are left out. Raises `KeySetError`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise KeySetError(f"the key set is not JSON: {type(problem).__name__}") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise KeySetError(f"the key set has no list 'keys' of at most {MAX_KEYS}")
    keys: list[Key] = []
    for one in listed:
        if not isinstance(one, dict) or one.get("kty") not in ("RSA", "EC"):
            continue
        # A set that was published with private parts must not make this process keep them.
        public = {name: value for name, value in one.items() if name not in ("d", "p", "q", "dp", "dq", "qi")}
        try:
            keys.append(import_key(public))
        except (JoseError, ValueError, TypeError, LookupError):
            continue
    if not keys:
        raise KeySetError("the key set has no RSA or EC key that can be read")
    return KeySet(keys)


def read_bytes(place: str) -> bytes:
    """The bytes at a URL (http, https, file). Blocks. Raises `KeySetError`."""
    try:
        with urllib.request.urlopen(place, timeout=TIMEOUT_SEC) as answer:
            data: bytes = answer.read(MAX_BYTES + 1)
    # What is no HTTP is not an OSError.
    except (OSError, ValueError, http.client.HTTPException) as problem:
        if isinstance(problem, urllib.error.HTTPError):
            problem.close()  # it has the connection
        reason = getattr(problem, "reason", None) or problem
        raise KeySetError(
            f"{without_credentials(place)} cannot be read: {quoted(str(reason), _SHOWN_CHARACTERS)}"
        ) from None
    if len(data) > MAX_BYTES:
        raise KeySetError(f"{without_credentials(place)} has more than {MAX_BYTES} bytes")
    return data


class KeySetSource:
    """See `KeySource`. The last good set stays while none can be read."""

    def __init__(
        self,
        place: str,
        refresh_sec: float,
        clock: Callable[[], float],
        read: Callable[[str], bytes] = read_bytes,
    ) -> None:
        """`clock`: monotonic, in seconds. `read`: blocks, raises `KeySetError`."""
        self._place = place
        self._refresh_sec = refresh_sec
        self._clock = clock
        self._read = read
        self._reading: asyncio.Task[bool] | None = None
        self._asked_sec: float | None = None
        self.keys: KeySet | None = None

    async def run(self) -> None:
        """Read the keys now and on schedule, until cancelled."""
        while True:
            succeeded = await self._read_once()
            await asyncio.sleep(self._refresh_sec if succeeded else min(RETRY_SEC, self._refresh_sec))

    async def read_again(self) -> bool:
        """See `KeySource`. All who ask meanwhile wait for the same reading."""
        if self._reading is None:
            now_sec = self._clock()
            if self._asked_sec is not None and now_sec - self._asked_sec < MIN_INTERVAL_SEC:
                return False
            self._asked_sec = now_sec
        return await self._read_once()

    async def _read_once(self) -> bool:
        if self._reading is None:
            self._reading = asyncio.create_task(self._take(), name="reading token keys")
            self._reading.add_done_callback(self._done)
        return await asyncio.shield(self._reading)

    def _done(self, task: "asyncio.Task[bool]") -> None:
        self._reading = None

    async def _take(self) -> bool:
        try:
            data = await asyncio.to_thread(self._read, self._place)
            self.keys = parse_key_set(data)
        except KeySetError as problem:
            logger.warning(
                "cannot read the keys of OAUTHBEARER's tokens, going on with the last ones",
                extra={"problem": str(problem), "has_keys": self.keys is not None},
            )
            return False
        return True

    async def close(self) -> None:
        """Cancel a reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
