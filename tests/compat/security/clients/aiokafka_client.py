"""aiokafka."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

import aiokafka.conn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.compat.security.clients import Refused
from tests.compat.security.clients.client_logs import reasons
from tests.support.client_security import ssl_context
from tests.support.security_plan import MECHANISMS, OAUTH, Access
from tests.support.waiting import PATIENCE_MS, PATIENCE_SEC

REFUSED_AFTER_MS = 1_000

T = TypeVar("T")


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # the base has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def run_to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Run what uses the client, then wait until its connections have ended.

    The client does not wait for those that it gives up. Over TLS one ends with an answer of the broker; left open
    with the loop it would be a ResourceWarning in some later test.
    """
    ends: list[asyncio.Future[None]] = []

    class Noted(aiokafka.conn.AIOKafkaProtocol):  # type: ignore[misc]  # the base has no types
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            ends.append(self._closed_fut)

    async def all_ended() -> None:
        if ends:
            _, open_still = await asyncio.wait(ends, timeout=PATIENCE_SEC)
            assert not open_still, f"{len(open_still)} of {len(ends)} connections stay open"

    with asyncio.Runner() as runner, mock.patch.object(aiokafka.conn, "AIOKafkaProtocol", Noted):
        try:
            return runner.run(work)
        finally:
            runner.run(all_ended())


class Aiokafka:
    """The client of asyncio; each call has a loop of its own."""

    name = "aiokafka"
    mechanisms: tuple[str, ...] = MECHANISMS

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition."""

        async def run() -> None:
            admin = AIOKafkaAdminClient(**config(access))
            await admin.start()
            try:
                await admin.create_topics([NewTopic(topic, 1, 1)])
            finally:
                await admin.close()

        run_to_the_end(run())

    def produce(
        self, access: Access, topic: str, values: list[str], timeout_ms: int = PATIENCE_MS
    ) -> str | None:
        """Send the values, and give the first error."""

        async def run() -> None:
            producer = AIOKafkaProducer(**config(access), request_timeout_ms=timeout_ms)
            try:
                await producer.start()
                for value in values:
                    await producer.send_and_wait(topic, value.encode(), partition=0)
            finally:
                await producer.stop()

        try:
            run_to_the_end(run())
        except KafkaError as error:
            return type(error).__name__
        return None

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group."""

        async def run() -> list[str]:
            consumer = AIOKafkaConsumer(
                topic,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **config(access),
            )
            values: list[str] = []
            try:
                await consumer.start()
                async with asyncio.timeout(PATIENCE_SEC):
                    while len(values) < count:
                        values.append((await consumer.getone()).value.decode())
                    await consumer.commit()
            finally:
                await consumer.stop()
            return values

        try:
            return run_to_the_end(run())
        except KafkaError as error:
            raise Refused(type(error).__name__) from error

    def refusal(self, access: Access) -> str | None:
        """Its log lines at its start: it raises only that there is no broker."""
        with reasons("aiokafka") as log:
            error = self.produce(access, "refused", ["x"], REFUSED_AFTER_MS)
        return log.found[0] if log.found else error


def config(access: Access) -> dict[str, Any]:
    """Its settings."""
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
    }
    if access.is_tls:
        settings["ssl_context"] = ssl_context(access)
    if access.mechanism == OAUTH:
        assert access.token
        settings |= {"sasl_mechanism": OAUTH, "sasl_oauth_token_provider": _Token(access.token)}
    elif access.mechanism:
        settings |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": access.user,
            "sasl_plain_password": access.password,
        }
    return settings
