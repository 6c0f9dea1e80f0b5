"""The admin HTTP server over real sockets: pages, refusals, and clients that mean no good."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType

import pytest

from kafscale.errors import StartupError
from kafscale.ops.admin_requests import AdminAnswer, AdminRequest
from kafscale.ops.health import Health
from kafscale.ops.http import MAX_REQUEST_BYTES, AdminServer
from kafscale.ops.metrics import Metrics
from kafscale.ops.metrics_token import MetricsToken
from tests.support.waiting import PATIENCE_SEC, wait_until

Start = Callable[..., tuple[AdminServer, int]]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def start(metrics: Metrics, health: Health) -> Iterator[Start]:
    servers: list[AdminServer] = []

    def start_server(**limits: object) -> tuple[AdminServer, int]:
        server = AdminServer(metrics, health, **limits)  # type: ignore[arg-type]
        servers.append(server)
        return server, server.start("127.0.0.1", 0)

    yield start_server
    for server in servers:
        server.stop()


def request(
    port: int, path: str, method: str = "GET", headers: Mapping[str, str] = NO_HEADERS
) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SEC)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def received_until_closed(connection: socket.socket) -> bytes:
    connection.settimeout(30)
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        return received
    return received


def test_metrics_are_served_in_prometheus_form(start: Start, metrics: Metrics) -> None:
    _, port = start()
    metrics.topic("orders").bytes_in += 42
    response, body = request(port, "/metrics?name=x")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b'kafscale_topic_bytes_in_total{topic="orders"} 42.0\n' in body


def test_readiness_is_a_status_with_reasons(start: Start, health: Health) -> None:
    _, port = start()
    response, body = request(port, "/readyz")
    assert (response.status, json.loads(body)) == (
        503,
        {"status": "not ready", "reasons": {"broker": "the broker is starting"}},
    )
    assert response.headers["Content-Type"] == "application/json"
    health.set_ready()
    response, body = request(port, "/readyz")
    assert (response.status, json.loads(body)) == (200, {"status": "ready"})


def test_a_warning_is_in_the_body_of_a_broker_that_is_ready(start: Start, health: Health) -> None:
    _, port = start()
    health.set_ready()
    health.add_warning("object_store", lambda: "UNAVAILABLE for writes")
    response, body = request(port, "/readyz")
    assert (response.status, json.loads(body)) == (
        200,
        {"status": "ready", "warnings": {"object_store": "UNAVAILABLE for writes"}},
    )
    assert b"warnings" not in request(port, "/healthz")[1]


def test_liveness_is_a_status_with_reasons(start: Start, health: Health) -> None:
    _, port = start()
    response, body = request(port, "/healthz")
    assert (response.status, json.loads(body)) == (200, {"status": "alive"})
    health.add_liveness_check("event loop", lambda: "hung")
    response, body = request(port, "/healthz")
    assert (response.status, json.loads(body)) == (
        503,
        {"status": "not alive", "reasons": {"event loop": "hung"}},
    )


def test_head_has_the_length_and_no_body(start: Start) -> None:
    _, port = start()
    response, body = request(port, "/healthz", "HEAD")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_other_paths_and_methods_are_refused(start: Start) -> None:
    _, port = start()
    assert request(port, "/")[0].status == 404
    assert request(port, "/metrics/x")[0].status == 404
    for method in ("POST", "DELETE", "BREW"):
        response, _ = request(port, "/metrics", method)
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"


def test_check_that_raises_is_a_no_and_the_server_goes_on(
    start: Start, health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    _, port = start()
    health.add_check("broken", lambda: str(1 // 0))
    with pytest.raises(http.client.RemoteDisconnected):
        request(port, "/readyz")
    assert request(port, "/healthz")[0].status == 200
    assert "an admin request failed" in caplog.text


def test_an_endless_request_is_cut_off(start: Start) -> None:
    _, port = start()
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        try:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n" + b"X: y\r\n" * MAX_REQUEST_BYTES)
        except (BrokenPipeError, ConnectionResetError):
            return
        assert b"HTTP/1.0 200" not in received_until_closed(connection)


def test_a_request_of_exactly_the_limit_is_answered_so(start: Start) -> None:
    _, port = start()
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall((b"GET /metrics HTTP/1.0\r\nX: " + b"y" * MAX_REQUEST_BYTES)[:MAX_REQUEST_BYTES])
        assert received_until_closed(connection).startswith(b"HTTP/1.0 431 ")


def test_a_client_that_sends_drop_by_drop_meets_the_deadline(start: Start) -> None:
    _, port = start(deadline_sec=0.3)
    started = time.monotonic()
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.settimeout(0.02)
        closed = False
        while not closed and time.monotonic() - started < 30:
            try:
                connection.sendall(b"G")
                closed = connection.recv(1) == b""
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                closed = True
    assert closed
    assert time.monotonic() - started >= 0.3


def test_clients_that_say_nothing_do_not_keep_others_out(start: Start) -> None:
    _, port = start(max_connections=4)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
    try:
        assert request(port, "/healthz")[0].status == 200
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_does_not_read_does_not_keep_others_out(start: Start, metrics: Metrics) -> None:
    for index in range(2000):
        metrics.topic(f"topic-{index}" * 8).bytes_in += 1
    _, port = start()
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert connection.recv(1)
        assert request(port, "/metrics")[0].status == 200


def test_a_port_in_use_names_address_and_setting() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        server = AdminServer(Metrics(), Health())
        with pytest.raises(StartupError) as refused:
            server.start("127.0.0.1", port)
        server.stop()
    message = str(refused.value)
    assert f"127.0.0.1:{port} for metrics: Address already in use" in message
    assert "KAFSCALE_METRICS_ADDR" in message


def test_a_host_that_cannot_be_resolved_names_it() -> None:
    with pytest.raises(StartupError, match=r"no-such-host\.invalid.*KAFSCALE_METRICS_ADDR"):
        AdminServer(Metrics(), Health()).start("no-such-host.invalid", 0)


def _server_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("admin-http")]


def test_stop_ends_open_connections_and_frees_the_port(start: Start) -> None:
    server, port = start()
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall(b"GET")
        request(port, "/healthz")
        server.stop()
        assert received_until_closed(connection) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    wait_until(lambda: not _server_threads(), "the threads of connections have ended, too")
    server.stop()


def test_ipv6_is_listened_on_or_its_lack_is_logged(metrics: Metrics, health: Health) -> None:
    server = AdminServer(metrics, health)
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        with pytest.raises(StartupError, match=r"::1.*KAFSCALE_METRICS_ADDR"):
            server.start("::1", 0)
        return
    port = server.start("::1", 0)
    with closing(socket.create_connection(("::1", port))) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert received_until_closed(connection).startswith(b"HTTP/1.0 200")
    server.stop()


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic right", "right", "Bearer rightx"]
)
def test_metrics_need_the_token_and_health_none(start: Start, tmp_path: Path, given: str) -> None:
    file = tmp_path / "token"
    file.write_text("right\n")
    _, port = start(token=MetricsToken(file))
    response, body = request(port, "/metrics", headers={"Authorization": given} if given else NO_HEADERS)
    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"right" not in body
    assert request(port, "/metrics", headers={"Authorization": "Bearer right"})[0].status == 200
    assert request(port, "/healthz")[0].status == 200


class _Pages:
    """Answers one path with what it was requested with."""

    def answer(self, request: AdminRequest) -> AdminAnswer | None:
        if request.path != "/page":
            return None
        text = f"{request.query} {request.host} {request.authorization}"
        return AdminAnswer(HTTPStatus.OK, "text/html", text.encode(), {"Cache-Control": "no-store"})


def test_pages_answer_what_metrics_and_health_do_not(start: Start) -> None:
    _, port = start(pages=_Pages())
    response, body = request(port, "/page?a=1&b", headers={"Authorization": "Basic x"})
    assert (response.status, body.decode()) == (200, f"a=1&b 127.0.0.1:{port} Basic x")
    assert (response.headers["Cache-Control"], response.headers["X-Content-Type-Options"]) == (
        "no-store",
        "nosniff",
    )
    assert request(port, "/page", "HEAD")[1] == b""
    assert request(port, "/page", "POST")[0].status == 405
    assert request(port, "/other")[0].status == 404
    assert request(port, "/healthz")[0].status == 200


def test_metrics_token_may_change_and_go(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    _, port = start(token=MetricsToken(file))

    def status(token: str) -> int:
        return request(port, "/metrics", headers={"Authorization": f"bearer {token}"})[0].status

    assert (status("old"), status("new")) == (200, 401)
    file.write_text("new")
    assert (status("old"), status("new")) == (401, 200)
    file.write_text("")
    assert status("new") == 401
    file.unlink()
    assert status("new") == 401
