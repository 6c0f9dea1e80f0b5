"""Reads from a schema registry over HTTP: bounded in time, size and attempts; redirects are not followed.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html, which Karapace and Apicurio
(`/apis/ccompat/v7`) serve, too.
"""

import base64
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.registry.documents import FoundSchema, SchemaDocumentError, SchemaType, read_answer
from kafscale.masking import without_credentials

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_ATTEMPTS: Final = 3
_PAUSE_SEC: Final = 0.5
_PIECE_BYTES: Final = 64 * 1024
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_TEMPORARY: Final = frozenset({408, 429, 500, 502, 503, 504})
# Confluent's codes for a subject, a version and a schema that are not there.
_NOT_FOUND: Final = frozenset({40401, 40402, 40403})


class RegistryError(KafscaleError):
    """The registry did not answer, or not as one: the message says what to look at."""


class RegistryUnavailableError(RegistryError):
    """The registry cannot be reached or cannot answer now; another attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """Where a registry is, and as whom to ask. `user_info`: `user:password`; `token`: of a bearer.

    `timeout_sec`: for one question with all its attempts.
    """

    url: str
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout_sec: float = 30.0


def check_access(access: RegistryAccess) -> None:
    """Raise `SettingError` for what is not legal."""
    parts = urlsplit(access.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingError(
            f"--schema-registry {without_credentials(access.url)!r} is not legal: it must be the URL of a registry, "
            "such as https://registry.example.com:8081, or .../apis/ccompat/v7 of Apicurio"
        )
    if "@" in parts.netloc:
        raise SettingError(
            "--schema-registry is not legal: a URL with a password is seen by other users; give it with "
            "--schema-registry-user-info env:VARIABLE"
        )
    if access.user_info is not None and access.token is not None:
        raise SettingError(
            "--schema-registry-token is of no use beside --schema-registry-user-info: give one of them"
        )
    if access.user_info is not None and ":" not in access.user_info:
        raise SettingError("--schema-registry-user-info is not legal: its variable must hold USER:PASSWORD")
    if access.ca_file is not None and parts.scheme != "https":
        raise SettingError("--schema-registry-ca is of no use with http://: give an https:// URL")


class RegistryClient:
    """Asks a registry. `clock` in seconds and `sleep` for tests. Raises `SettingError` for a CA that is none."""

    def __init__(
        self,
        access: RegistryAccess,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_access(access)
        self._url = access.url.rstrip("/")
        self._timeout_sec = access.timeout_sec
        self._headers = {"Accept": _ACCEPT, "User-Agent": "kafscale-export", **_authorization(access)}
        self._clock = clock
        self._sleep = sleep
        self._pool = urllib3.PoolManager(num_pools=1, retries=False, ssl_context=_tls(access))

    @property
    def url(self) -> str:
        """The registry's address, without credentials."""
        return self._url

    def close(self) -> None:
        """Close its connections."""
        self._pool.clear()

    def schema(self, schema_id: int) -> FoundSchema | None:
        """The schema of this id, None if the registry has none. Raises `RegistryError`."""
        return self._schema(f"/schemas/ids/{schema_id}", schema_id)

    def version(self, subject: str, version: int | None) -> FoundSchema | None:
        """A version of a subject, the latest for None; None if there is none. Raises `RegistryError`."""
        which = "latest" if version is None else version
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/{which}", None)

    def _schema(self, path: str, schema_id: int | None) -> FoundSchema | None:
        fields = self._get(path)
        if fields is None:
            return None
        try:
            found = read_answer(fields, schema_id)
            if found.schema_type is SchemaType.PROTOBUF:
                found = replace(found, text=self._descriptor(found.schema_id) or found.text)
        except SchemaDocumentError as problem:
            raise self._strange(path, str(problem)) from None
        return found

    def _descriptor(self, schema_id: int | None) -> str | None:
        """The schema as a descriptor, in Base64, where the registry can: without it the text needs a compiler."""
        try:
            fields = self._get(f"/schemas/ids/{schema_id}?format=serialized")
            return None if fields is None else read_answer(fields, schema_id).text
        except (RegistryError, SchemaDocumentError) as problem:
            logger.info("schema %s is compiled from its text: %s", schema_id, problem)
            return None

    def _get(self, path: str) -> Mapping[str, Any] | None:
        until = self._clock() + self._timeout_sec
        for attempt in range(_ATTEMPTS):
            try:
                return self._ask(path, until)
            except RegistryUnavailableError:
                pause_sec = _PAUSE_SEC * 2**attempt
                if attempt == _ATTEMPTS - 1 or self._clock() + pause_sec >= until:
                    raise
                self._sleep(pause_sec)
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, path: str, until: float) -> Mapping[str, Any] | None:
        left_sec = max(0.1, until - self._clock())
        try:
            response = self._pool.request(
                "GET",
                self._url + path,
                headers=self._headers,
                redirect=False,
                preload_content=False,
                decode_content=True,
                timeout=urllib3.Timeout(connect=left_sec / 2, read=left_sec),
            )
            try:
                body = self._read(response, path, until)
            finally:
                # Not returned to the pool: a body may be unread.
                response.close()
        except SSLError as problem:
            raise RegistryError(
                f"the schema registry {self._url} has no certificate that is trusted here ({_short(problem)}): give "
                "its CA with --schema-registry-ca"
            ) from None
        except (HTTPError, OSError) as problem:
            raise RegistryUnavailableError(
                f"the schema registry {self._url} does not answer ({_short(problem)}): see that it runs and can be "
                "reached from here, and run the export again"
            ) from None
        return self._answer(path, response.status, response.headers.get("Location"), body)

    def _read(self, response: urllib3.BaseHTTPResponse, path: str, until: float) -> bytes:
        parts: list[bytes] = []
        size_bytes = 0
        while piece := response.read1(_PIECE_BYTES):
            parts.append(piece)
            size_bytes += len(piece)
            if size_bytes > MAX_ANSWER_BYTES:
                raise self._strange(path, f"is larger than {MAX_ANSWER_BYTES:,} bytes")
            if self._clock() > until:
                raise RegistryUnavailableError(
                    f"the schema registry {self._url} has not finished {path} within {self._timeout_sec:g} s: see "
                    "that it is not overloaded, and run the export again"
                )
        return b"".join(parts)

    def _answer(self, path: str, status: int, location: str | None, body: bytes) -> Mapping[str, Any] | None:
        if status in _TEMPORARY:
            raise RegistryUnavailableError(
                f"the schema registry {self._url} answers {status} to {path}{_reason(body)}: see that it "
                "is well, and run the export again"
            )
        if 300 <= status < 400:
            target = without_credentials((location or "")[:200])
            raise RegistryError(
                f"the schema registry {self._url} redirects {path} to {target!r}, which is not followed, because it "
                "would be sent the credentials: give the URL that it redirects to"
            )
        if status in (401, 403):
            raise RegistryError(
                f"the schema registry {self._url} refuses {path} with {status}{_reason(body)}: give credentials that "
                "may read it with --schema-registry-user-info or --schema-registry-token"
            )
        fields = _json(body)
        if status == 404 and isinstance(fields, dict) and fields.get("error_code") in _NOT_FOUND:
            return None
        if status != 200:
            raise self._strange(path, f"has status {status}{_reason(body)}")
        if not isinstance(fields, dict):
            raise self._strange(path, "is no JSON object")
        return fields

    def _strange(self, path: str, problem: str) -> RegistryError:
        return RegistryError(
            f"the answer of {self._url} to {path} is not that of a schema registry: it {problem}; see that the URL "
            "is a registry's, with its path"
        )


def _authorization(access: RegistryAccess) -> dict[str, str]:
    if access.user_info is not None:
        return {"Authorization": f"Basic {base64.b64encode(access.user_info.encode()).decode()}"}
    return {} if access.token is None else {"Authorization": f"Bearer {access.token.strip()}"}


def _tls(access: RegistryAccess) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if access.ca_file is None else str(access.ca_file))
    except (OSError, ValueError) as problem:
        raise SettingError(
            f"--schema-registry-ca {str(access.ca_file)!r} is not legal: it must be a file of certificates in PEM "
            f"({_short(problem)})"
        ) from None


def _json(body: bytes) -> object:
    try:
        found: object = json.loads(body)
        return found
    except (ValueError, RecursionError):
        return None


def _reason(body: bytes) -> str:
    """The registry's own words, if it has some."""
    fields = _json(body)
    said = fields.get("message") if isinstance(fields, dict) else None
    return f" ({without_credentials(ascii(said)[:200])})" if isinstance(said, str) and said else ""


def _short(problem: BaseException) -> str:
    """The kind and the words of a client's error, which has the address and never a header."""
    return f"{type(problem).__name__}: {without_credentials(ascii(str(problem))[1:-1])[:200]}"
