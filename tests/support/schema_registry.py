"""A schema registry for tests: Confluent's API on loopback, in a thread, with faults on order."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, bytes, Mapping[str, str]]
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(slots=True)
class SchemaRegistry:
    """Its content. `fault`: what it answers instead, by the path; None: what it has. `asked`: every path so far.

    `authorization`: the header that it wants, None for no header at all.
    """

    url: str = ""
    authorization: str | None = None
    fault: Callable[[str], Answer | None] = lambda _: None
    asked: list[str] = field(default_factory=list)
    sent: list[str | None] = field(default_factory=list)
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def register(
        self,
        subject: str,
        schema: object,
        schema_type: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
        schema_id: int | None = None,
    ) -> int:
        """A new version of the subject; its id. A `schema` that is no text is written as JSON."""
        number = schema_id if schema_id is not None else len(self.schemas) + 1
        fields: dict[str, Any] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if schema_type != "AVRO":
            fields["schemaType"] = schema_type
        if references:
            fields["references"] = [
                {"name": name, "subject": other, "version": version} for name, other, version in references
            ]
        self.schemas[number] = fields
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, target: str, authorization: str | None) -> Answer:
        """The answer to a GET."""
        self.asked.append(target)
        self.sent.append(authorization)
        found = self.fault(target)
        if found is not None:
            return found
        if authorization != self.authorization:
            return _error(401, 40101, "User cannot access the resource")
        parts = [unquote(part) for part in urlsplit(target).path.strip("/").split("/")]
        match parts:
            case ["schemas", "ids", number]:
                known = self.schemas.get(int(number))
                return _error(404, 40403, "Schema not found") if known is None else _fine(known)
            case ["subjects", subject, "versions", version]:
                return self._version(subject, version)
        return _error(404, 404, "HTTP 404 Not Found")

    def _version(self, subject: str, version: str) -> Answer:
        ids = self.subjects.get(subject)
        if ids is None:
            return _error(404, 40401, f"Subject '{subject}' not found.")
        index = len(ids) if version == "latest" else int(version)
        if not 1 <= index <= len(ids):
            return _error(404, 40402, f"Version {version} not found.")
        number = ids[index - 1]
        return _fine({"subject": subject, "version": index, "id": number, **self.schemas[number]})


def _fine(fields: Mapping[str, Any]) -> Answer:
    return 200, json.dumps(fields).encode(), {"Content-Type": CONTENT_TYPE}


def _error(status: int, code: int, message: str) -> Answer:
    return (
        status,
        json.dumps({"error_code": code, "message": message}).encode(),
        {"Content-Type": CONTENT_TYPE},
    )


def basic(user: str, password: str) -> str:
    """The header for them."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def schema_registry(tls: tuple[Path, Path] | None = None) -> Iterator[SchemaRegistry]:
    """A registry for the time of the block. `tls`: its certificate and its key."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, headers = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, ssl.SSLError):
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
