"""A small S3 server on the test's own event loop: it stores objects, and gives the test's answers first.

Requests of multipart uploads, and HEAD, have scripts of their own, by what they ask: `begin`, `part`,
`complete`, `abort`, `mark`.
With `ignores_conditions` it lies as some real ones do: If-None-Match is accepted and not looked at.
"""

import asyncio
import contextlib
import re
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import parse_qs
from xml.sax.saxutils import escape, unescape

from tests.support.http_stream import Head, HttpStreamError, read_head, request_body
from tests.support.scripted_uploads import MARK, ScriptedUploads
from tests.support.tcp_server import HOST, TcpServer

BUCKET = "records"


class How(Enum):
    """The way in which an answer is given."""

    REPLY = auto()
    DROP = auto()  # the request is carried out, and the connection breaks in place of a reply
    HOLD = auto()  # no answer, until the server stops
    CUT = auto()  # the reply's body ends with the connection, before its length


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came."""

    method: str
    key: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The server's answer; with `status` None its usual one."""

    status: int | None = None
    body: bytes = b""
    how: How = How.REPLY
    headers: dict[str, str] = field(default_factory=dict)


def error(status: int, code: str, **headers: str) -> Answer:
    """An answer with S3's error document."""
    body = f"<Error><Code>{code}</Code><Message>as the test said</Message></Error>".encode()
    return Answer(status=status, body=body, headers=headers)


class ScriptedS3:
    """The server. `script` is used up answer by answer, `requests` is what came, in that order."""

    def __init__(
        self, *, ignores_conditions: bool = False, scheme: str = "http", bucket: str = BUCKET
    ) -> None:
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.script: deque[Answer] = deque()
        self.uploads = ScriptedUploads(self.objects, ignores_conditions=ignores_conditions)
        self.upload_scripts: defaultdict[str, deque[Answer]] = defaultdict(deque)
        self.requests: list[Request] = []
        self.port = 0
        self.under_way = 0
        self.most_under_way = 0
        self.begun = asyncio.Event()  # a request whose body was not read yet, or that is held
        self._scheme = scheme
        self._ignores_conditions = ignores_conditions
        self.pause_sec = 0.0  # before every answer

    @property
    def settings(self) -> dict[str, str]:
        """A store's settings for it, as environment variables."""
        return {
            "KAFSCALE_S3_BUCKET": self.bucket,
            "KAFSCALE_S3_ENDPOINT": f"{self._scheme}://{HOST}:{self.port}",
            "KAFSCALE_S3_REGION": "us-east-1",
            "KAFSCALE_S3_ACCESS_KEY": "key",
            "KAFSCALE_S3_SECRET_KEY": "secret",
        }

    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    def upload_operations(self) -> list[str]:
        """The requests about uploads, in that order."""
        operations = [self.uploads.operation(request.method, request.query) for request in self.requests]
        return [operation for operation in operations if operation is not None]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(HttpStreamError):  # the client is done with it
            while (head := await read_head(reader)) is not None:
                self.begun.set()
                if not await self._answer(head, reader, writer):
                    break

    async def _answer(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """True if the connection may carry another request."""
        operation = self.uploads.operation(head.method, head.query)
        script = self.script if operation is None else self.upload_scripts[operation]
        answer = script.popleft() if script else Answer()
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if answer.how is How.HOLD and answer.status is None and not answer.body:
                await asyncio.Event().wait()  # the body stays unread as well
            request = await _request(head, reader, self.bucket)
            self.requests.append(request)
            await asyncio.sleep(self.pause_sec)
        finally:
            self.under_way -= 1
        told = self._carry_out(request) if answer.status is None else answer
        if answer.how is How.DROP:
            return False
        headers = {"content-length": str(len(told.body)), "etag": '"1"'} | told.headers
        lines = [f"HTTP/1.1 {told.status} Said", *(f"{name}: {value}" for name, value in headers.items())]
        body = told.body[: len(told.body) // 2] if answer.how is How.CUT else told.body
        if request.method == "HEAD":
            body = b""
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        return answer.how is How.REPLY

    def _carry_out(self, request: Request) -> Answer:
        operation = self.uploads.operation(request.method, request.query)
        if operation is not None and operation != "mark":
            status, said = self.uploads.carry_out(operation, request)
            return error(status, said) if status >= 400 else Answer(status=status, body=said.encode())
        match request.method:
            case "PUT":
                is_conditional = request.headers.get("if-none-match") == "*" and not self._ignores_conditions
                if is_conditional and request.key in self.objects:
                    return error(412, "PreconditionFailed")
                self.objects[request.key] = request.body
                return Answer(status=200)
            case "POST" if "delete" in request.query:
                keys = re.findall(r"<Key>([^<]*)</Key>", request.body.decode())
                for key in keys:
                    self.objects.pop(unescape(key), None)
                told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
                return Answer(status=200, body=f"<DeleteResult>{told}</DeleteResult>".encode())
            case "GET" if not request.key:
                return self._listing(request)
            case _:
                return self._content(request)

    def _content(self, request: Request) -> Answer:
        content = self.objects.get(request.key)
        if content is None:
            return error(404, "NoSuchKey")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        modified = {"last-modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if mark := self.uploads.marks.get(request.key):
            modified[MARK] = mark
        if asked is None:
            return Answer(status=200, body=content, headers=modified)
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(content))
        if start >= len(content):
            return error(416, "InvalidRange")
        place = {"content-range": f"bytes {start}-{end - 1}/{len(content)}"}
        return Answer(status=206, body=content[start:end], headers=modified | place)

    def _listing(self, request: Request) -> Answer:
        query = parse_qs(request.query)
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        if self.bucket.endswith("--x-s3"):
            return self._directory_listing(prefix, after, "start-after" in query)
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        page = keys[:1000]
        return self._page(page, page[-1] if len(keys) > 1000 else "")

    def _directory_listing(self, prefix: str, after: str, starts_after: bool) -> Answer:
        """As S3 Express One Zone lists: in no order, by whole folders, from the beginning."""
        if starts_after or (prefix and not prefix.endswith("/")):
            return error(400, "InvalidArgument")
        keys = sorted((key for key in self.objects if key.startswith(prefix)), key=lambda key: key[::-1])
        first = int(after or 0)
        return self._page(keys[first : first + 1000], str(first + 1000) if len(keys) > first + 1000 else "")

    def _page(self, keys: list[str], next_token: str) -> Answer:
        more = next_token and f"<NextContinuationToken>{escape(next_token)}</NextContinuationToken>"
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in keys
        )
        return Answer(status=200, body=f"<ListBucketResult>{more}{entries}</ListBucketResult>".encode())


@asynccontextmanager
async def scripted_s3(
    *, ignores_conditions: bool = False, tls: ssl.SSLContext | None = None, bucket: str = BUCKET
) -> AsyncIterator[ScriptedS3]:
    """A server that runs in the block."""
    scripted = ScriptedS3(
        ignores_conditions=ignores_conditions, scheme="http" if tls is None else "https", bucket=bucket
    )
    server = TcpServer(scripted.serve, tls=tls)
    await server.listen()
    scripted.port = server.port
    try:
        yield scripted
    finally:
        await server.close()


async def _request(head: Head, reader: asyncio.StreamReader, bucket: str) -> Request:
    body = b"".join([piece async for piece in request_body(reader, head)])
    key = head.path.removeprefix(f"/{bucket}").removeprefix("/")
    return Request(method=head.method, key=key, query=head.query, headers=head.headers, body=body)
