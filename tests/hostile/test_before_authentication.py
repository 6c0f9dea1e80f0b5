"""Untrusted clients at a SASL listener: nothing is served to them, and a known client goes on."""

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from kafscale.commands.cli import main
from tests.fuzz.mutations import Mutations
from tests.support.broker import KafscaleBroker
from tests.support.nightly import by_day
from tests.support.sasl import ALICE, PASSWORD, plain_token
from tests.support.waiting import PATIENCE_SEC

FRAMES: Final = by_day(4_000, by_night=1_000_000)
STRANGERS: Final = 24
MAX_FRAMES_OF_A_CONNECTION: Final = 12
MEMORY_LIMIT_BYTES: Final = 64 * 1024 * 1024
SEED: Final = 20_261_123


class SaslBroker(KafscaleBroker):
    """A broker whose only listener is SASL_PLAINTEXT, with every mechanism."""

    def environment(self) -> dict[str, str]:
        environment = super().environment()
        address = environment.pop("KAFSCALE_BROKER_ADDR")
        return environment | {
            "KAFSCALE_LISTENERS": f"SASL_PLAINTEXT://{address}",
            "KAFSCALE_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": "http://127.0.0.1:1/keys",
            "KAFSCALE_ALLOW_PLAINTEXT": "true",
            "KAFSCALE_CONNECTION_FAILED_AUTHENTICATION_DELAY_MS": "2",
            "KAFSCALE_SASL_AUTHENTICATION_TIMEOUT_MS": "2000",
        }


pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SaslBroker]:
    broker = SaslBroker(tmp_path)
    added = CliRunner().invoke(
        main,
        ["users", "add", ALICE, "--password-stdin"],
        input=PASSWORD,
        env={"KAFSCALE_DATA_DIR": str(broker.data_folder)},
    )
    assert added.exit_code == 0, added.output
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.close()


def framed(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=7, client_id="stranger")
    return bytes(request.encode(framed=True, header=True))


def payload(request: Any, version: int) -> bytes:
    return framed(request, version)[4:]


SCRAM_FIRST: Final = b"n,,n=alice,r=abcdefgh"
OAUTH_FIRST: Final = b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"
TOKENS: Final = (
    plain_token(ALICE, "wrong"),
    plain_token("nobody", "x"),
    SCRAM_FIRST,
    OAUTH_FIRST,
    b"\x01",
    b"",
)
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "x" * 300)


@dataclass(slots=True)
class Stranger:
    """Makes the frames of one stranger, by its chances alone."""

    chances: random.Random
    mutations: Mutations = field(init=False)

    def __post_init__(self) -> None:
        self.mutations = Mutations(self.chances)

    def frames(self) -> Iterator[bytes]:
        """The frames of one connection; mostly a legal beginning first, so that every state is reached."""
        chances = self.chances
        if chances.random() < 0.3:
            yield self._framed(payload(ApiVersionsRequest(), chances.randint(0, 4)))
        version = chances.randint(0, 1)
        if chances.random() < 0.8:
            yield self._framed(
                payload(SaslHandshakeRequest(mechanism=chances.choice(MECHANISMS[:4])), version)
            )
        for _ in range(chances.randint(1, MAX_FRAMES_OF_A_CONNECTION)):
            yield self._any(version)

    def _any(self, version: int) -> bytes:
        chances = self.chances
        token = chances.choice(TOKENS)
        wrapped = payload(SaslAuthenticateRequest(auth_bytes=token), chances.randint(0, 2))
        kinds = (
            lambda: self._framed(self.mutations.damaged(wrapped, token + bytes(8))),
            lambda: self._framed(wrapped if version else token[: chances.randint(0, 20)]),
            lambda: self._framed(payload(SaslHandshakeRequest(mechanism=chances.choice(MECHANISMS)), 1)),
            lambda: self._framed(payload(MetadataRequest(topics=None), 5)),
            lambda: struct.pack(">i", chances.choice((-1, 0, 1, 7, 65_537, 2**31 - 1))),
            lambda: self._framed(chances.randbytes(chances.choice((8, 40, 65_000)))),
            lambda: framed(ApiVersionsRequest(), 0)[: chances.randint(1, 10)],
        )
        return chances.choice(kinds)()

    @staticmethod
    def _framed(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data


@dataclass(slots=True)
class Tally:
    """Of all strangers."""

    frames: int = 0
    connections: int = 0
    reply_bytes: int = 0


@contextlib.asynccontextmanager
async def connection(
    broker: KafscaleBroker,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def one_connection(broker: KafscaleBroker, stranger: Stranger, tally: Tally) -> None:
    """Send until the broker closes, then read what it had said: never the answer to a Metadata request."""
    tally.connections += 1
    with contextlib.suppress(OSError):  # The broker closes; the system calls that by several names.
        async with connection(broker) as (reader, writer):
            for frame in stranger.frames():
                tally.frames += 1
                writer.write(frame)
                await writer.drain()
                if stranger.chances.random() < 0.3:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.01):
                            tally.reply_bytes += len(await reader.read(4096))
            if stranger.chances.random() < 0.2:
                writer.write_eof()
                replies = await reader.read()
                tally.reply_bytes += len(replies)
                assert b"127.0.0.1" not in replies, "the brokers' addresses are for clients that are known"


async def strangers(broker: KafscaleBroker, tally: Tally, seed: int) -> None:
    stranger = Stranger(random.Random(seed))
    while tally.frames < FRAMES:
        async with asyncio.timeout(PATIENCE_SEC):
            await one_connection(broker, stranger, tally)


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Any, version: int
) -> bytes:
    writer.write(framed(request, version))
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def known_client(broker: KafscaleBroker, stop: asyncio.Event, slowest: list[float]) -> int:
    """Ask for metadata on one connection, and log in by PLAIN again and again; returns the requests."""
    count = 0
    async with connection(broker) as (reader, writer):
        await log_in(reader, writer)
        while not stop.is_set():
            began = time.monotonic()
            await exchange(reader, writer, MetadataRequest(topics=[]), 5)
            slowest[0] = max(slowest[0], time.monotonic() - began)
            count += 1
            if count % 20 == 0:
                async with connection(broker) as (other_reader, other_writer):
                    await log_in(other_reader, other_writer)
            await asyncio.sleep(0.002)
    return count


async def log_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await exchange(reader, writer, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await exchange(reader, writer, SaslAuthenticateRequest(auth_bytes=plain_token()), 1)
    assert answer[4:6] == b"\0\0", answer


@pytest.mark.timeout(3_600)
async def test_fuzz_before_authentication_leaves_a_known_client_alone(broker: SaslBroker) -> None:
    tally, stop, slowest = Tally(), asyncio.Event(), [0.0]
    before_bytes = await asyncio.to_thread(broker.memory_bytes)
    known = asyncio.create_task(known_client(broker, stop, slowest))
    await asyncio.gather(*(strangers(broker, tally, SEED + index) for index in range(STRANGERS)))
    stop.set()
    requests = await known
    grown_bytes = await asyncio.to_thread(broker.memory_bytes) - before_bytes
    print(
        f"{tally.frames} frames in {tally.connections} connections, {requests} requests of the known client, "
        f"the slowest in {slowest[0] * 1000:.0f} ms, {grown_bytes / 2**20:.1f} MiB more"
    )
    assert tally.reply_bytes > 0
    assert requests > 20
    assert slowest[0] < 5.0
    assert grown_bytes < MEMORY_LIMIT_BYTES
    log = broker.log_text()
    assert "a request failed" not in log
    assert PASSWORD not in log
    assert log.count("closed a connection") < 200


async def test_flood_of_logins_leaves_other_addresses_a_turn(broker: SaslBroker) -> None:
    """Logins of one address wait for each other; a client at another one is let in meanwhile."""
    stop = asyncio.Event()

    async def flood() -> None:
        while not stop.is_set():
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with connection(broker) as (reader, writer):
                    await exchange(reader, writer, SaslHandshakeRequest(mechanism="PLAIN"), 1)
                    token = plain_token("nobody", "x")
                    await exchange(reader, writer, SaslAuthenticateRequest(auth_bytes=token), 1)

    flooding = [asyncio.create_task(flood()) for _ in range(100)]
    try:
        for _ in range(by_day(5, by_night=100)):
            reader, writer = await asyncio.open_connection(
                broker.host, broker.port, local_addr=("127.0.0.2", 0)
            )
            async with asyncio.timeout(PATIENCE_SEC):
                began = time.monotonic()
                await log_in(reader, writer)
            assert time.monotonic() - began < 5.0
            writer.transport.abort()
    finally:
        stop.set()
        await asyncio.gather(*flooding)
