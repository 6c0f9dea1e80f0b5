"""Certificates, a password and token keys are rotated while clients come, send and go: no request fails."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.compat.security.clients import librdkafka
from tests.compat.security.conftest import USERS
from tests.support.certificates import Certificates
from tests.support.client_security import librdkafka_config, write_tool_config
from tests.support.nightly import by_day, nightly_but
from tests.support.oauth_server import OauthServer
from tests.support.secure_peer import SecurePeer, access, secure_peer
from tests.support.security_plan import OAUTH, SASL_SSL, SCRAM_256, SCRAM_512, SSL, Access, SecurityPlan
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

TOPIC = unique_name("rotated")
ROUNDS = by_day(1, by_night=5)
RECORDS = 3
PAUSE_SEC = 0.1
TOKEN_SEC = 2.0


class Load:
    """Two producers of one user: one stays connected, the other connects again for every few records."""

    def __init__(self, way_in: Callable[[], Access]) -> None:
        self._way_in = way_in
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.connected = 0
        self.sent = 0
        self.renewed = 0
        self._threads = [threading.Thread(target=self._come_and_go), threading.Thread(target=self._stay)]
        for thread in self._threads:
            thread.start()

    def goes_on(self) -> None:
        """Wait until it has connected, and the other has sent, some more times."""
        connected, sent = self.connected, self.sent
        wait_until(
            lambda: self.errors or (self.connected > connected + 2 and self.sent > sent + 2), "more load"
        )

    def renews_token(self) -> None:
        """Wait until the client that stays has asked for another token twice."""
        renewed = self.renewed
        wait_until(lambda: self.errors or self.renewed > renewed + 1, "another token")

    def stop(self) -> None:
        """Stop, and wait for the rest."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _come_and_go(self) -> None:
        while not self._stop.is_set():
            producer = self._producer()
            for number in range(RECORDS):
                producer.produce(TOPIC, str(number), on_delivery=self._report)
            self._flush(producer)
            self.connected += 1
            self._stop.wait(PAUSE_SEC)

    def _stay(self) -> None:
        producer = self._producer(oauth_cb=self._next_token)
        while not self._stop.is_set():
            producer.produce(TOPIC, "stays", on_delivery=self._report)
            self._flush(producer)
            self.sent += 1
            self._stop.wait(PAUSE_SEC)

    def _producer(self, **more: Any) -> Producer:
        way_in = self._way_in()
        settings = {**librdkafka.config(way_in), "error_cb": self._fail}
        return Producer(settings | more if way_in.token else settings)

    def _next_token(self, _: Any) -> tuple[str, float]:
        self.renewed += 1
        return self._way_in().token or "", time.time() + TOKEN_SEC

    def _flush(self, producer: Producer) -> None:
        if producer.flush(PATIENCE_SEC):
            self.errors.append(f"not acknowledged within {PATIENCE_SEC} s")

    def _report(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        self.errors.append(str(error))


@contextmanager
def under_load(way_in: Callable[[], Access]) -> Iterator[Load]:
    """Load for the time of the block, none of which may fail."""
    load = Load(way_in)
    try:
        load.goes_on()
        yield load
        load.goes_on()
    finally:
        load.stop()
    assert load.errors == []


@pytest.fixture(scope="module")
def own_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that no other broker uses."""
    return Certificates(tmp_path_factory.mktemp("rotated-certificates"))


@pytest.fixture(scope="module")
def rotated(
    own_certificates: Certificates, oauth: OauthServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecurePeer]:
    """A broker that reads the keys of tokens every second, with a topic."""
    plan = SecurityPlan(
        certificates=own_certificates, users=USERS, oauth=oauth, listeners=(SSL, SASL_SSL),
        mechanisms=(SCRAM_256, SCRAM_512, OAUTH), has_authorizer=False, jwks_refresh_ms=1_000,
    )  # fmt: skip
    with secure_peer(tmp_path_factory.mktemp("rotated"), plan) as peer:
        librdkafka.Librdkafka().create(access(peer, SASL_SSL, "admin"), TOPIC)
        yield peer


@pytest.mark.parametrize("protocol", nightly_but([SSL, SASL_SSL], SSL))
def test_server_certificate_is_rotated(
    rotated: SecurePeer, own_certificates: Certificates, tmp_path: Path, protocol: str
) -> None:
    config = write_tool_config(access(rotated, SASL_SSL, "admin"), tmp_path / "admin.properties")
    with under_load(lambda: access(rotated, protocol, "alice")) as load:
        for _ in range(ROUNDS):
            before = shown_certificate(rotated, protocol)
            own_certificates.rotate_server()
            rotated.reload_certificates(config)
            wait_for_another_certificate(rotated, protocol, before)
            load.goes_on()


def test_password_is_rotated(rotated: SecurePeer) -> None:
    """Each mechanism has a password of its own: clients go to the other one while this one is changed.

    The other tests' user is another one: they come in any order.
    """
    admin = AdminClient(librdkafka_config(access(rotated, SASL_SSL, "admin")))
    now = {"way": access(rotated, SASL_SSL, "bob", SCRAM_256)}
    with under_load(lambda: now["way"]) as load:
        for number in range(ROUNDS):
            for mechanism, kind in (
                (SCRAM_512, ScramMechanism.SCRAM_SHA_512),
                (SCRAM_256, ScramMechanism.SCRAM_SHA_256),
            ):
                password = f"rotated-{number}"
                change_password(admin, "bob", kind, password)
                now["way"] = access(rotated, SASL_SSL, "bob", mechanism).but(password=password)
                load.goes_on()
    old = access(rotated, SASL_SSL, "bob", SCRAM_256).but(password=USERS["bob"])
    assert librdkafka.Librdkafka().refusal(old) == "_AUTHENTICATION"


def test_keys_of_tokens_are_rotated(rotated: SecurePeer, oauth: OauthServer) -> None:
    """A key is published before it signs, and withdrawn when no client has a token of it any more."""
    way_in = access(rotated, SASL_SSL, "alice", OAUTH)
    with under_load(lambda: access(rotated, SASL_SSL, "alice", OAUTH)) as load:
        for _ in range(ROUNDS):
            old = oauth.token("alice")
            oauth.publish_key()
            wait_for_refusal(way_in.but(token=oauth.token("alice", is_next=True)), None)
            oauth.sign_with_newest()
            load.renews_token()
            load.goes_on()
            oauth.withdraw_old_keys()
            wait_for_refusal(way_in.but(token=old), "_AUTHENTICATION")
            load.goes_on()


def wait_for_refusal(way_in: Access, expected: str | None) -> None:
    """Wait until a client that comes so is let in, or kept out with this error."""
    client = librdkafka.Librdkafka()
    wait_until(lambda: client.refusal(way_in) == expected, f"a client meets {expected}")


def change_password(admin: AdminClient, user: str, kind: Any, password: str) -> None:
    upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
    admin.alter_user_scram_credentials([upsertion])[user].result(PATIENCE_SEC)


def wait_for_another_certificate(peer: SecurePeer, protocol: str, before: bytes) -> None:
    """Wait until a new connection is shown another certificate."""
    wait_until(lambda: shown_certificate(peer, protocol) != before, "another certificate")


def shown_certificate(peer: SecurePeer, protocol: str) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=peer.plan.certificates.ca)
    if protocol == SSL:
        identity = peer.plan.certificates.client("alice")
        context.load_cert_chain(identity.cert, identity.key)
    with (
        socket.create_connection(("127.0.0.1", peer.ports[protocol])) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
