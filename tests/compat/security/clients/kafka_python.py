"""kafka-python."""

import contextlib
import json
import logging
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAuthorizationFailedError
from kafka.net.inet import KafkaNetSocket
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compat.security.clients import Refused
from tests.compat.security.clients.client_logs import NOT_AUTHORIZED, find_reasons, reasons
from tests.support.client_security import ssl_context
from tests.support.security_plan import MECHANISMS, OAUTH, Access
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

REFUSED_AFTER_MS = 2_000
FETCHES_WITHIN_SEC = 5.0


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # the base has no types
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class _ClosedTlsSocket(ssl.SSLSocket):
    """A socket that is closed when it is let go.

    kafka-python (3.0.12) lets sockets go open when its client is closed in a handshake or before it could write all.
    Python warns of that in whichever test runs then.
    """

    def __del__(self) -> None:
        self.close()


class _ClosedSocket(socket.socket):
    """The same without TLS."""

    def __del__(self) -> None:
        self.close()


def _new_socket(_: KafkaNetSocket, family: int, kind: int, protocol: int) -> socket.socket:
    return _ClosedSocket(family, kind, protocol)


KafkaNetSocket.socket = _new_socket


class KafkaPython:
    """The client of Python alone."""

    name = "kafka-python"
    mechanisms: tuple[str, ...] = MECHANISMS

    def create(self, access: Access, topic: str) -> None:
        """Create a topic of one partition."""
        with contextlib.closing(KafkaAdminClient(**config(access))) as admin:
            admin.create_topics([NewTopic(name=topic, num_partitions=1, replication_factor=1)])

    def produce(self, access: Access, topic: str, values: list[str]) -> str | None:
        """Send the values, and give the first error."""
        with contextlib.closing(KafkaProducer(**config(access), max_block_ms=20_000)) as producer:
            try:
                futures = [producer.send(topic, value.encode(), partition=0) for value in values]
                for future in futures:
                    future.get(PATIENCE_SEC)
            except KafkaError as error:
                return type(error).__name__
        return None

    def consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        """The first values of the topic, as a member of the group.

        Over TLS its first fetch is sometimes never answered to it, on Kafka too (3.0.12): then another member tries.
        """
        values: list[str] = []
        deadline = time.monotonic() + PATIENCE_SEC
        while len(values) < count:
            assert time.monotonic() < deadline, f"{values} of {count} records"
            with contextlib.suppress(NotInTimeError):
                values = self._consume(access, topic, group, count)
        return values

    def _consume(self, access: Access, topic: str, group: str, count: int) -> list[str]:
        consumer = KafkaConsumer(
            topic, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **config(access)
        )
        values: list[str] = []

        def enough() -> bool:
            for batch in consumer.poll(timeout_ms=200).values():
                values.extend(record.value.decode() for record in batch)
            if NOT_AUTHORIZED in log.found:  # it goes on trying
                raise TopicAuthorizationFailedError(topic)
            return len(values) >= count

        try:
            with reasons("kafka") as log:
                wait_until(enough, f"{count} records", FETCHES_WITHIN_SEC)
            consumer.commit()
        except KafkaError as error:
            raise Refused(type(error).__name__) from error
        finally:
            consumer.close()
        return values

    def refusal(self, access: Access) -> str | None:
        """The reason that it logs while it looks for a broker: its constructor says only that there is none.

        It may miss the reason, because it does not read on when the broker closes the connection. It leaves refused
        sockets open, so this is a process of its own.
        """
        done = subprocess.run(
            [sys.executable, "-m", __name__], input=json.dumps(asdict(access)), capture_output=True, text=True,
            timeout=PATIENCE_SEC, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return None
        return next(iter(find_reasons(done.stderr)), done.stdout.strip())


def config(access: Access) -> dict[str, Any]:
    """Its settings."""
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
    }
    if access.is_tls:
        settings["ssl_context"] = context = ssl_context(access)
        context.sslsocket_class = _ClosedTlsSocket
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


def _refusal() -> int:
    """Connect as an `Access` on standard input says. Prints the class of the error."""
    logging.basicConfig()
    way_in = Access(**json.load(sys.stdin))
    try:
        KafkaProducer(**config(way_in), bootstrap_timeout_ms=REFUSED_AFTER_MS).close()
    except KafkaError as error:
        print(type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_refusal())
