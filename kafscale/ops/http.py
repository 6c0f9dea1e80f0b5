"""The admin HTTP server: `/metrics`, `/healthz`, `/readyz` and pages for people, in threads of its own.

It runs beside the event loop so that a scrape of a large cluster does not hold up Kafka clients and a hung
loop is still reported. Each connection carries one request, has a deadline for all of it, and is read no
further than a small limit; when there are too many, the oldest is ended.
"""

import io
import json
import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from kafscale.errors import cannot_listen
from kafscale.ops.admin_requests import AdminAnswer, AdminPages, AdminRequest, text_answer
from kafscale.ops.health import Health
from kafscale.ops.metric_export import render
from kafscale.ops.metrics import Metrics
from kafscale.ops.metrics_token import MetricsToken
from kafscale.settings.broker import variable_of
from kafscale.settings.kinds import Address

_logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
MAX_REQUEST_BYTES = 16 * 1024
DEADLINE_SEC = 10.0
ACCEPT_POLL_SEC = 0.2
NOTHING: Mapping[str, str] = MappingProxyType({})


class AdminServer:
    """Serves one broker's metrics and health from `start` to `stop`. `token`: what metrics need, None: nothing.

    `pages` answers every other path; without it there is none.
    """

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        *,
        token: MetricsToken | None = None,
        pages: AdminPages | None = None,
        deadline_sec: float = DEADLINE_SEC,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._token = token
        self._pages = pages
        self._deadline_sec = deadline_sec
        self._max_connections = max_connections
        self._rendering = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> int:
        """Listen, and return the port (the system's choice for 0).

        Raises `StartupError` when the address cannot be listened on.
        """
        try:
            self._server = _Server((host, port), self.answer, self._deadline_sec, self._max_connections)
        except OSError as error:
            raise cannot_listen(Address(host, port), "metrics", error, variable_of("metrics_addr")) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(ACCEPT_POLL_SEC,), name="admin-http", daemon=True
        )
        self._thread.start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop listening and end open connections; blocks for a moment. No error when not started."""
        server, thread, self._server, self._thread = self._server, self._thread, None, None
        if server is not None and thread is not None:
            server.shutdown()
            thread.join()
            server.server_close()
            server.end_connections()

    def answer(self, request: AdminRequest) -> AdminAnswer | None:
        """The answer to a request; None when there is no such page."""
        match request.path:
            case "/metrics" if self._token is not None and not self._token.admits(request.authorization):
                needed = "a bearer token is needed"
                return text_answer(HTTPStatus.UNAUTHORIZED, needed, WWW_Authenticate="Bearer")
            case "/metrics":
                with self._rendering:
                    return AdminAnswer(HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, render(self._metrics))
            case "/healthz":
                return _health_answer("alive", self._health.liveness_problems())
            case "/readyz":
                return _health_answer("ready", self._health.readiness_problems(), self._health.warnings())
            case _:
                return None if self._pages is None else self._pages.answer(request)


def _health_answer(
    what: str, problems: Mapping[str, str], warnings: Mapping[str, str] = NOTHING
) -> AdminAnswer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    body: dict[str, object] = {"status": what}
    if problems:
        body = {"status": f"not {what}", "reasons": dict(problems)}
    if warnings:
        body["warnings"] = dict(warnings)
    return AdminAnswer(status, "application/json", json.dumps(body).encode() + b"\n")


class _Server(socketserver.TCPServer):
    """Accepts connections and gives each a thread, up to a cap."""

    # On Windows it would let two servers have one port.
    allow_reuse_address = os.name == "posix"
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[AdminRequest], AdminAnswer | None],
        deadline_sec: float,
        max_connections: int,
    ) -> None:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self.answer = answer
        self.deadline_sec = deadline_sec
        self._max_connections = max_connections
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in a thread, and end the oldest one when there are too many."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="admin-http-connection", daemon=True
        )
        with self._lock:
            if len(self._connections) >= self._max_connections:
                _end(next(iter(self._connections)))
            self._connections[request] = thread
        thread.start()

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:
            _logger.debug("an admin connection broke", extra={"error": str(error)})
        except Exception:
            _logger.exception("an admin request failed")
        finally:
            with self._lock:
                self._connections.pop(request, None)
            self.shutdown_request(request)

    def end_connections(self) -> None:
        """End what is open and wait for its threads."""
        with self._lock:
            threads = list(self._connections.values())
            for connection in self._connections:
                _end(connection)
        for thread in threads:
            thread.join()


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _logger.debug("an admin connection had ended already", extra={"error": str(error)})


class _RequestTooLargeError(Exception):
    """More than `MAX_REQUEST_BYTES` came before the end of the request's headers."""


class _BoundedInput(io.RawIOBase):
    """The bytes that a client sends, until a point in time and up to `MAX_REQUEST_BYTES`."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left_bytes = MAX_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left_bytes == 0:
            raise _RequestTooLargeError
        left_sec = self._deadline - time.monotonic()
        if left_sec <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left_sec)
        count = self._connection.recv_into(buffer, min(len(buffer), self._left_bytes))
        self._left_bytes -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    """One connection: one request, one answer."""

    server: _Server
    server_version = "kafscale"
    sys_version = ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        deadline = time.monotonic() + self.server.deadline_sec
        self.rfile = io.BufferedReader(_BoundedInput(self.connection, deadline))

    def handle(self) -> None:
        try:
            super().handle()
        except _RequestTooLargeError:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command in ("GET", "HEAD"):
            return True
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path, _, query = self.path.partition("?")
        request = AdminRequest(
            path=path,
            query=query,
            host=self.headers.get("Host"),
            authorization=self.headers.get("Authorization"),
        )
        answer = self.server.answer(request)
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if with_body:
            self.connection.settimeout(self.server.deadline_sec)
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        _logger.debug(format, *args)
