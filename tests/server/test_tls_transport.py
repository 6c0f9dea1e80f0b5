"""TLS between connection and socket, without a socket: the test decides what arrives together and what leaves."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable

import pytest

from kafscale.ops.metrics import FrameRefusal
from kafscale.security.principal import ANONYMOUS
from tests.support.in_process_broker import until
from tests.support.on_uvloop import on_uvloop
from tests.support.tls_files import TlsFolder
from tests.support.tls_pair import Inner, Pair, Services


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFolder:
    return TlsFolder(tmp_path_factory.mktemp("tls"))


def over_tls(test: Callable[[Services], Awaitable[None]]) -> Callable[[TlsFolder], None]:
    """A test on the broker's loop, with the services of a listener."""

    @on_uvloop
    async def run(files: TlsFolder) -> None:
        await test(Services(files))

    return run


@over_tls
async def test_a_handshake_makes_the_client_known(services: Services) -> None:
    pair = Pair(services)
    pair.shake_hands()
    assert pair.inner.principal == ANONYMOUS
    assert pair.refused is None


@pytest.mark.parametrize("seed", range(8))
def test_bytes_arrive_as_sent_however_they_are_cut(seed: int, files: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        rng = random.Random(seed)
        inner = Inner(rng)
        inner.pause_after = lambda: rng.random() < 0.2
        pair = Pair(Services(files), inner)
        pair.shake_hands()
        sent = bytearray()
        waiting = b""
        for _ in range(20):
            data = rng.randbytes(rng.choice([1, 50, 5_000, 40_000, 150_000]))
            sent += data
            waiting += pair.ciphertext(data)
            while waiting or len(inner.received) < len(sent):
                waiting = pair.feed(waiting, lambda: rng.choice([1, 7, 1_000, 20_000, 10**9]))
                pair.tls.resume_reading()
                await asyncio.sleep(0)
        assert inner.received == sent
        assert pair.services.budget.used_bytes == 0

    run()


@pytest.mark.parametrize("seed", range(8))
def test_replies_leave_as_written_however_slowly_they_are_read(seed: int, files: TlsFolder) -> None:
    @on_uvloop
    async def run() -> None:
        rng = random.Random(seed)
        pair = Pair(Services(files))
        pair.shake_hands()
        pair.socket.room_bytes = 0
        written = bytearray()
        for _ in range(30):
            if pair.inner.is_paused:
                pair.socket.take(rng.choice([1, 1_000, 100_000, 2_000_000]))
                continue
            buffers = [
                rng.randbytes(rng.choice([0, 5, 300, 20_000, 150_000])) for _ in range(rng.randint(1, 6))
            ]
            written += b"".join(buffers)
            if len(buffers) == 1:
                pair.tls.write(buffers[0])
            else:
                pair.tls.writelines([memoryview(buffer) for buffer in buffers])
        pair.tls.close()
        pair.socket.take(float("inf"))
        assert pair.socket.is_closed
        assert pair.client_reads() == written
        assert pair.has_ended

    run()


@over_tls
async def test_a_reply_is_encrypted_as_the_socket_takes_it(services: Services) -> None:
    pair = Pair(services)
    pair.shake_hands()
    pair.socket.room_bytes = 0
    pair.tls.write(os.urandom(10_000_000))
    assert pair.inner.is_paused
    assert pair.socket.get_write_buffer_size() < 70_000
    assert pair.tls.get_write_buffer_size() >= 10_000_000
    pair.socket.take(float("inf"))
    assert pair.inner.pauses == 1
    assert pair.tls.get_write_buffer_size() == 0
    assert len(pair.client_reads()) == 10_000_000


@over_tls
async def test_small_buffers_share_a_record(services: Services) -> None:
    pair = Pair(services)
    pair.shake_hands()
    before = len(pair.socket.sent)
    pair.tls.writelines([b"x" * 10] * 1_000)
    assert len(pair.socket.sent) - before < 10_000 + 100
    assert pair.client_reads() == b"x" * 10_000


@over_tls
async def test_what_waits_while_paused_counts_in_the_budget(services: Services) -> None:
    inner = Inner()
    inner.pause_after = lambda: True
    # The connection takes a little at a time and pauses: the rest stays in the session.
    inner._room = inner._room[:100]
    pair = Pair(services, inner)
    pair.shake_hands()
    rest = pair.feed(pair.ciphertext(os.urandom(200_000)))
    room = len(rest)
    assert not pair.socket.reading
    assert len(inner.received) == 100
    assert 200_000 - room < 20_000, "it reads no more than a record beyond what the connection takes"
    pair.tls.connection_lost(None)
    assert services.budget.used_bytes == 0
    assert inner.is_lost


@over_tls
async def test_bytes_that_are_no_tls_are_refused(services: Services) -> None:
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x20\x00\x12\x00\x03",
        b"\x16\x03\x01\x00\x04\x05\x00\x00\x00",
    ):
        pair = Pair(services)
        pair.feed(data)
        assert pair.refused is not None, data
        assert pair.refused[0] is FrameRefusal.TLS
        assert pair.socket.is_aborted


@over_tls
async def test_random_bytes_never_raise(services: Services) -> None:
    rng = random.Random(0)
    for _ in range(100):
        pair = Pair(services)
        if rng.random() < 0.5:
            pair.shake_hands()
        pair.feed(
            rng.choice([b"", b"\x16\x03\x01", b"\x17\x03\x03\x00\x20"]) + rng.randbytes(rng.randint(1, 300))
        )
        pair.tls.connection_lost(None)
        assert not pair.inner.received


@over_tls
async def test_a_changed_byte_ends_the_connection(services: Services) -> None:
    pair = Pair(services)
    pair.shake_hands()
    data = bytearray(pair.ciphertext(b"x" * 1_000))
    data[500] ^= 1
    pair.feed(bytes(data))
    assert pair.refused is not None
    assert not pair.inner.received


@over_tls
async def test_the_clients_end_closes_after_the_replies(services: Services) -> None:
    pair = Pair(services)
    pair.shake_hands()
    pair.socket.room_bytes = 0
    pair.tls.write(b"x" * 200_000)
    pair.feed(pair.ciphertext(b"last") + pair.end())
    assert pair.inner.received == b"last"
    before = pair.socket.is_closed
    pair.socket.take(float("inf"))
    assert (before, pair.socket.is_closed, pair.socket.is_aborted) == (False, True, False)


@on_uvloop
async def test_a_handshake_has_a_time_limit(files: TlsFolder) -> None:
    pair = Pair(Services(files, timeout_sec=0.01))
    await until(lambda: pair.refused, "it is refused")
    assert pair.socket.is_aborted
    assert pair.refused == (FrameRefusal.TLS, "no TLS handshake within 0.01 s")


@over_tls
async def test_a_finished_handshake_has_no_limit_any_more(services: Services) -> None:
    pair = Pair(services)
    pair.shake_hands()
    assert pair.tls._deadline is None
