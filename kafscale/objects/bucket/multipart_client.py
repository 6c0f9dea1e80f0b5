"""The requests of a multipart upload, over boto3: the data path's library completes none conditionally.

Decision: docs/decisions/0020-streamed-creation-and-replica.md.
"""

import asyncio
import base64
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from crc32c import crc32c

from kafscale.objects.bucket.errors import Failure, Outcome, classify_answer
from kafscale.objects.bucket.requests import AttemptError
from kafscale.objects.request_meter import RequestLog, Unmetered
from kafscale.ops.prices import Operation
from kafscale.settings.broker import Settings

T = TypeVar("T")

NO_SUCH_UPLOAD = "NoSuchUpload"

_OPERATIONS = {
    "create_multipart_upload": Operation.CREATE_MULTIPART_UPLOAD,
    "upload_part": Operation.UPLOAD_PART,
    "complete_multipart_upload": Operation.COMPLETE_MULTIPART_UPLOAD,
    "abort_multipart_upload": Operation.ABORT_MULTIPART_UPLOAD,
    "head_object": Operation.HEAD_OBJECT,
}

# Tells whose object lies under a key: a header of the object that names the upload that made it.
_MARK = "kafscale-upload"
# A request of this many bytes more gets a client that waits twice as long.
_SHORTEST_WAIT_SEC = 16
_BYTES_PER_SEC = 2**20
# What this library takes from the platform, in the way in which the data path's library does: regions under
# either name, and no files of profiles.
_SESSION_VARIABLES = {
    "profile": (None, [], None, None),
    "config_file": (None, [], os.devnull, None),
    "credentials_file": (None, [], os.devnull, None),
    "region": (None, ["AWS_REGION", "AWS_DEFAULT_REGION"], "us-east-1", None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPart:
    """One part in the completion. `crc32c`: in base64, as it was sent."""

    number: int
    etag: str
    crc32c: str


class MultipartClient:
    """One bucket of S3's. Methods are one attempt each, made in a thread; they raise `AttemptError`.

    A caller that is cancelled leaves the thread to its end, which the socket's time limits bring. `close` ends
    the connections; threads that are still at it then do not keep the process.
    """

    def __init__(self, settings: Settings, bucket: str, meter: RequestLog | None = None) -> None:
        self._settings = settings
        self._meter = meter or Unmetered()
        self._bucket = bucket
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[int, Any] = {}
        self._in_flight: dict[str, set[Future[Any]]] = {}

    async def begin(self, key: str, mark: str) -> str:
        """Begin an upload whose object carries the mark; returns its id."""
        more = {}
        if self._settings.s3_kms_arn is not None:
            more = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self._settings.s3_kms_arn}
        answer = await self._call(
            "create_multipart_upload", key, 0, Metadata={_MARK: mark}, ChecksumAlgorithm="CRC32C", **more
        )
        return str(answer["UploadId"])

    async def send(self, key: str, upload: str, number: int, content: bytearray) -> SentPart:
        """Send one part, numbered from 1. The content is read for as long as the thread goes on."""
        checksum = await asyncio.to_thread(_checksum, content)
        answer = await self._call(
            "upload_part",
            key,
            len(content),
            upload,
            PartNumber=number,
            Body=content,
            ContentLength=len(content),
            ChecksumCRC32C=checksum,
        )
        return SentPart(number=number, etag=answer["ETag"], crc32c=checksum)

    async def complete(self, key: str, upload: str, parts: list[SentPart], patience_bytes: int) -> None:
        """Make the object of its parts unless the key is taken, waiting as long as for so many bytes."""
        told = [
            {"PartNumber": part.number, "ETag": part.etag, "ChecksumCRC32C": part.crc32c} for part in parts
        ]
        await self._call(
            "complete_multipart_upload",
            key,
            patience_bytes,
            upload,
            MultipartUpload={"Parts": told},
            IfNoneMatch="*",
        )

    async def abort(self, key: str, upload: str) -> None:
        """Delete the upload and its parts. A part in flight may stay: see `quiet`."""
        try:
            await self._call("abort_multipart_upload", key, 0, upload)
        except AttemptError as problem:
            if problem.code != NO_SUCH_UPLOAD:
                raise

    async def quiet(self, upload: str) -> None:
        """Wait until no request for the upload is in flight, awaited or not."""
        threads = [asyncio.wrap_future(thread) for thread in self._in_flight.get(upload, ())]
        await asyncio.gather(*threads, return_exceptions=True)

    async def mark_of(self, key: str) -> str | None:
        """The mark of the object that lies there, "" for one without; None when there is none."""
        try:
            answer = await self._call("head_object", key, 0)
        except AttemptError as problem:
            # Without a body. The bucket is there: something was sent to it.
            if problem.code == "404":
                return None
            raise
        return str(answer["Metadata"].get(_MARK, ""))

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    async def _call(
        self, operation: str, key: str, size_bytes: int, upload: str | None = None, **arguments: Any
    ) -> Any:
        if upload is not None:
            arguments["UploadId"] = upload
        self._meter.sent(_OPERATIONS[operation], key, arguments.get("ContentLength", 0))

        def call() -> Any:
            client = self._client(size_bytes)
            return getattr(client, operation)(Bucket=self._bucket, Key=key, **arguments)

        thread = _in_thread(lambda: _translated(f"{operation} {self._bucket}/{key}", call))
        future = asyncio.wrap_future(thread)
        if upload is not None:
            self._in_flight.setdefault(upload, set()).add(thread)
            loop = asyncio.get_running_loop()
            thread.add_done_callback(lambda _: _call_soon(loop, self._ended, upload, thread))
        return await future

    def _ended(self, upload: str, thread: "Future[Any]") -> None:
        threads = self._in_flight[upload]
        threads.discard(thread)
        if not threads:
            del self._in_flight[upload]

    def _client(self, size_bytes: int) -> Any:
        """A client whose time limits suit a request of that size: they belong to the client."""
        wait_sec = _SHORTEST_WAIT_SEC
        while wait_sec < _SHORTEST_WAIT_SEC + size_bytes // _BYTES_PER_SEC:
            wait_sec *= 2
        with self._lock:
            client = self._clients.get(wait_sec)
            if client is None:
                client = self._clients[wait_sec] = self._new_client(wait_sec)
            return client

    def _new_client(self, wait_sec: int) -> Any:
        # Imported here: a broker that merges nothing this large does without.
        import ssl

        import boto3
        import botocore.session
        from botocore.config import Config

        settings = self._settings
        if self._session is None:
            session = botocore.session.Session(session_vars=_SESSION_VARIABLES)
            if settings.s3_access_key is not None and settings.s3_secret_key is not None:
                session.set_credentials(
                    settings.s3_access_key, settings.s3_secret_key, settings.s3_session_token
                )
            self._session = boto3.Session(botocore_session=session)
        return self._session.client(
            "s3",
            region_name=settings.s3_region,
            endpoint_url=settings.s3_endpoint,
            # The authorities that SSL_CERT_FILE names, or the system's; else those that the library brings.
            verify=ssl.get_default_verify_paths().cafile or True,
            config=Config(
                # What is sent in one call has to be sent within the former.
                connect_timeout=wait_sec,
                read_timeout=wait_sec,
                max_pool_connections=settings.s3_concurrency,
                retries={"total_max_attempts": 1},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={
                    "addressing_style": "path" if settings.s3_path_style else "virtual",
                    # As on the data path: the CRC finds damage, TLS protects from intent.
                    "payload_signing_enabled": False,
                },
            ),
        )


def _checksum(content: bytearray) -> str:
    return base64.b64encode(crc32c(content).to_bytes(4, "big")).decode()


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    with suppress(RuntimeError):  # The loop was closed: no waiter is left.
        loop.call_soon_threadsafe(callback, *arguments)


def _in_thread(call: Callable[[], T]) -> "Future[T]":
    """Make the call in a thread of its own that does not keep the process from ending, as an executor's do."""
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as problem:  # noqa: BLE001 - it is the future's
            future.set_exception(problem)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="multipart upload", daemon=True).start()
    return future


def _translated(request: str, call: Callable[[], T]) -> T:
    """The result of the call. Raises `AttemptError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call()
    except ClientError as problem:
        answer, error = problem.response.get("ResponseMetadata", {}), problem.response.get("Error", {})
        code = str(error.get("Code", ""))
        status = int(answer.get("HTTPStatusCode", 0))
        failure = classify_answer(request, status, code, str(error.get("Message", "")))
        raise AttemptError(failure, code) from problem
    except (BotoCoreError, OSError) as problem:
        raise AttemptError(Failure(outcome=_outcome(problem), text=f"{request}: {problem}")) from problem


def _outcome(problem: Exception) -> Outcome:
    """The outcome of a request without an answer."""
    from botocore import exceptions as library

    refused = (library.NoCredentialsError, library.PartialCredentialsError, library.CredentialRetrievalError)
    if isinstance(problem, refused) or "CERTIFICATE_VERIFY_FAILED" in str(problem):
        return Outcome.REFUSED
    # Only of a connection that was never made is it known that no request went over it.
    never_made = (library.EndpointConnectionError, library.ProxyConnectionError)
    return Outcome.BUSY if isinstance(problem, never_made) else Outcome.UNKNOWN
