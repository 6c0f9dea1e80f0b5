"""The proxy before the S3 server does what a test commands, and else nothing."""

import asyncio
import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import S3Store

from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, s3_server
from tests.support.waiting import PATIENCE_SEC, wait_until

KEY = "/bucket/default/t/0/segment-00000000000000000000.kfs"
BROKEN = (ConnectionError, http.client.BadStatusLine, http.client.IncompleteRead)


class Server(ThreadingHTTPServer):
    """Keeps what is put; a second put of a key is refused. Remembers each request's headers."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}
        self.heads: list[tuple[str, str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One connection. `/bucket/chunked/...` is answered in chunks, `/bucket/unsized/...` up to its end."""

    server: Server
    protocol_version = "HTTP/1.1"

    def _body(self) -> bytes:
        self.server.heads.append((self.command, self.path, dict(self.headers.items())))
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_PUT(self) -> None:
        body = self._body()
        known = self.path in self.server.objects
        self.server.objects.setdefault(self.path, body)
        self._answer(412 if known else 200, b"")

    def do_GET(self) -> None:
        self._body()
        if self.path not in self.server.objects:
            self._answer(404, b"none")
            return
        body = self.server.objects[self.path]
        if "/chunked/" in self.path:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x;why=not\r\n%s\r\n0\r\nTrailer: 1\r\n\r\n" % (len(body), body))
        elif "/unsized/" in self.path:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        else:
            self._answer(200, body)

    def do_HEAD(self) -> None:
        self._body()
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.objects[self.path])))
        self.end_headers()

    def do_DELETE(self) -> None:
        self._body()
        self.server.objects.pop(self.path, None)
        self.send_response(204)
        self.end_headers()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Not on the test's output."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture
def proxy(server: Server) -> Iterator[ObjectStoreProxy]:
    with ObjectStoreProxy(server.url, seed=1) as made:
        yield made


class Client:
    """One connection to the proxy, opened again where it broke."""

    def __init__(self, proxy: ObjectStoreProxy) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_SEC)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        """Status and body."""
        try:
            self.connection.request(method, path, body, headers)  # type: ignore[arg-type]
            reply = self.connection.getresponse()
            return reply.status, reply.read()
        except Exception:
            self.connection.close()
            raise


@pytest.fixture
def client(proxy: ObjectStoreProxy) -> Iterator[Client]:
    made = Client(proxy)
    with contextlib.closing(made.connection):
        yield made


def test_what_passes_is_unchanged_and_on_one_connection(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    body = bytes(range(256)) * 8192  # 2 MiB
    assert client.ask("PUT", KEY, body, Authorization="AWS4 of it", Host="signed.for:1") == (200, b"")
    used = client.connection.sock
    assert client.ask("PUT", KEY, b"other") == (412, b"")
    assert client.ask("GET", KEY) == (200, body)
    assert client.ask("HEAD", KEY) == (200, b"")
    assert client.ask("DELETE", KEY) == (204, b"")
    assert client.ask("GET", KEY + "?versionId=a%2Fb") == (404, b"none")
    assert client.connection.sock is used
    assert server.heads[0] == (
        "PUT",
        KEY,
        {
            "Accept-Encoding": "identity",
            "Content-Length": str(len(body)),
            "Authorization": "AWS4 of it",
            "Host": "signed.for:1",
        },
    )
    assert server.heads[-1][1] == KEY + "?versionId=a%2Fb"


@pytest.mark.parametrize("where", ["chunked", "unsized"])
def test_bodies_without_a_length_pass(server: Server, client: Client, where: str) -> None:
    path = f"/bucket/{where}/key"
    pieces = (b"abc", b"d" * 100_000)
    assert client.ask("PUT", path, iter(pieces)) == (200, b"")  # http.client sends it in chunks
    assert server.objects[path] == b"".join(pieces)
    assert client.ask("GET", path) == (200, b"".join(pieces))
    assert client.ask("GET", path) == (200, b"".join(pieces))


def test_a_client_that_waits_to_send_its_body_gets_continue(server: Server, proxy: ObjectStoreProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as connection:
        connection.sendall(b"PUT " + KEY.encode() + b" HTTP/1.1\r\nExpect: 100-continue\r\n")
        connection.sendall(b"Host: a\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ab")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert server.objects == {KEY: b"ab"}


def test_slow_down_is_answered_and_not_forwarded(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    with proxy.fault(Fault(kind=FaultKind.SLOW_DOWN)):
        status, body = client.ask("PUT", KEY, b"a")
        assert (status, b"<Code>SlowDown</Code>" in body) == (503, True)
        used = client.connection.sock
        assert client.ask("HEAD", KEY) == (503, b"")
    assert server.heads == []
    assert client.ask("PUT", KEY, b"a") == (200, b"")
    assert client.connection.sock is used


def test_a_dropped_request_does_not_arrive(server: Server, proxy: ObjectStoreProxy, client: Client) -> None:
    with proxy.fault(Fault(kind=FaultKind.DROP_REQUEST)), pytest.raises(BROKEN):
        client.ask("PUT", KEY, b"a")
    assert server.heads == []


def test_a_dropped_reply_leaves_its_request_done(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    with proxy.fault(Fault(kind=FaultKind.DROP_REPLY)), pytest.raises(BROKEN):
        client.ask("PUT", KEY, b"a")
    assert server.objects == {KEY: b"a"}


def test_a_late_upload_arrives_long_after_its_client_gave_up(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    proxy.inject(Fault(kind=FaultKind.LATE, methods=frozenset({"PUT"}), times=1, seconds=(60, 60)))
    with pytest.raises(BROKEN):
        client.ask("PUT", KEY, b"the first attempt")
    assert (proxy.held, server.heads) == (1, [])
    assert client.ask("PUT", KEY + "2", b"another") == (200, b"")
    proxy.release()
    wait_until(lambda: server.objects.get(KEY) == b"the first attempt", "the late upload")
    assert proxy.held == 0


def test_a_late_upload_arrives_when_its_time_has_come(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    with proxy.fault(Fault(kind=FaultKind.LATE, seconds=(0.2, 0.3))), pytest.raises(BROKEN):
        client.ask("PUT", KEY, b"a")
    began = time.monotonic()
    wait_until(lambda: server.objects == {KEY: b"a"}, "the late upload")
    assert time.monotonic() - began > 0.1


def test_a_delayed_request_is_answered_after_its_time(proxy: ObjectStoreProxy, client: Client) -> None:
    with proxy.fault(Fault(kind=FaultKind.DELAY, seconds=(0.2, 0.3))):
        began = time.monotonic()
        assert client.ask("PUT", KEY, b"a") == (200, b"")
        assert 0.2 <= time.monotonic() - began < 5


def test_a_delayed_request_arrives_also_when_its_client_has_gone(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    proxy.inject(Fault(kind=FaultKind.DELAY, seconds=(60, 60), times=1))
    client.connection.request("PUT", KEY, b"a")
    wait_until(lambda: proxy.held == 1, "the request is held")
    client.connection.close()
    assert server.heads == []
    proxy.release()
    wait_until(lambda: server.objects == {KEY: b"a"}, "the request")
    wait_until(lambda: proxy.count("PUT", ".kfs", "200") == 1, "it is counted")


def test_a_black_hole_swallows_until_it_is_cleared(
    server: Server, proxy: ObjectStoreProxy, client: Client
) -> None:
    proxy.inject(Fault(kind=FaultKind.BLACK_HOLE))
    client.connection.timeout = 0.2
    with pytest.raises(TimeoutError):
        client.ask("PUT", KEY, b"a")
    client.connection.timeout = 10
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(client.ask, "PUT", KEY, b"a")
        wait_until(lambda: proxy.held == 2, "the second request is held")
        proxy.clear()
        with pytest.raises(BROKEN):
            asked.result(PATIENCE_SEC)
    assert server.heads == []
    assert client.ask("PUT", KEY, b"b") == (200, b"")


def test_connections_are_refused_and_accepted_again(proxy: ObjectStoreProxy, client: Client) -> None:
    assert client.ask("PUT", KEY, b"a") == (200, b"")
    proxy.refuse_connections()
    with pytest.raises(BROKEN):
        client.ask("GET", KEY)  # the connection that was open
    with pytest.raises(ConnectionRefusedError):
        client.ask("GET", KEY)
    proxy.accept_connections()
    assert client.ask("GET", KEY) == (200, b"a")


def test_a_server_that_is_away_breaks_connections(server: Server, client: Client) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(BROKEN):
        client.ask("GET", KEY)


def test_faults_are_chosen_by_method_key_and_number(proxy: ObjectStoreProxy, client: Client) -> None:
    proxy.inject(
        Fault(kind=FaultKind.SLOW_DOWN, methods=frozenset({"PUT"}), pattern=r"\.kfs$", times=2),
        Fault(kind=FaultKind.SLOW_DOWN, pattern="^/bucket/other key$"),
    )
    assert client.ask("PUT", "/bucket/a.index", b"")[0] == 200
    assert client.ask("GET", "/bucket/a.kfs")[0] == 404
    assert client.ask("GET", "/bucket/other%20key")[0] == 503
    assert [client.ask("PUT", "/bucket/a.kfs", b"")[0] for _ in range(3)] == [503, 503, 200]


def test_a_fault_with_a_probability_meets_some(proxy: ObjectStoreProxy, client: Client) -> None:
    with proxy.fault(Fault(kind=FaultKind.SLOW_DOWN, probability=0.5)):
        statuses = [client.ask("GET", KEY)[0] for _ in range(60)]
    assert {404, 503} == set(statuses)
    assert 10 < statuses.count(503) < 50


def test_requests_are_counted_by_kind(proxy: ObjectStoreProxy, client: Client) -> None:
    client.ask("PUT", KEY, b"")
    client.ask("PUT", KEY, b"")
    client.ask("PUT", "/bucket/a.index", b"")
    client.ask("GET", "/bucket?list-type=2")
    with proxy.fault(Fault(kind=FaultKind.DROP_REPLY)), pytest.raises(BROKEN):
        client.ask("GET", KEY)
    assert proxy.count("PUT", ".kfs") == 2
    assert proxy.count("PUT", ".kfs", "412") == 1
    assert proxy.count("PUT") == 3
    assert proxy.count("GET", "bucket") == 1
    assert proxy.count(outcome="DROP_REPLY") == 1
    assert proxy.count() == 5


def test_many_clients_at_once(server: Server, proxy: ObjectStoreProxy) -> None:
    def work(number: int) -> None:
        with contextlib.closing((one := Client(proxy)).connection):
            for turn in range(20):
                path, body = f"/bucket/{number}/{turn}", b"%d.%d" % (number, turn) * 10_000
                assert one.ask("PUT", path, body) == (200, b"")
                assert one.ask("GET", path) == (200, body)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert len(server.objects) == 320


@pytest.mark.skipif(s3_server_missing() is not None, reason=str(s3_server_missing()))
async def test_signed_late_upload_keeps_its_condition(
    tmp_path: Path,
) -> None:
    with s3_server(tmp_path) as server, ObjectStoreProxy(server.endpoint) as proxy:
        store = S3Store(
            server.bucket,
            endpoint=proxy.url,
            region=REGION,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        body = bytes(range(256)) * 4096
        await store.put_async("a.kfs", body, mode="create")
        assert bytes(await store.get_range_async("a.kfs", start=100, end=300)) == body[100:300]
        with pytest.raises(AlreadyExistsError):
            await store.put_async("a.kfs", b"other", mode="create")
        assert [item["path"] for batch in store.list() for item in batch] == ["a.kfs"]
        with proxy.fault(Fault(kind=FaultKind.LATE, pattern=r"b\.kfs", seconds=(60, 60))):
            with pytest.raises(GenericError):
                await store.put_async("b.kfs", b"first attempt", mode="create")
            proxy.clear()
            await store.put_async("b.kfs", b"second attempt", mode="create")
            proxy.release()
            await asyncio.to_thread(wait_until, lambda: proxy.count(outcome="LATE") == 1, "it arrives")
        assert bytes(await (await store.get_async("b.kfs")).bytes_async()) == b"second attempt"
