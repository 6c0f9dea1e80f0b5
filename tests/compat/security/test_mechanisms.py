"""Every client comes in by every mechanism and TLS mode that it has, creates, produces, and consumes in a group."""

import pytest

from tests.compat.security.clients import Client
from tests.compat.security.clients.librdkafka import Librdkafka
from tests.compat.security.clients.programs import Kcat
from tests.compat.security.conftest import CLIENTS, OPEN
from tests.support.nightly import nightly_but
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import (
    MECHANISMS,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SSL,
    Access,
)
from tests.support.topics import unique_name

COUNT = 5
every_client = pytest.mark.parametrize("client", CLIENTS, indirect=True)


@every_client
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_over_tls(secured: SecurePeer, client: Client, mechanism: str) -> None:
    round_trip(client, access(secured, SASL_SSL, "alice", mechanism))


@every_client
@pytest.mark.parametrize("mechanism", nightly_but(MECHANISMS, SCRAM_256))
def test_sasl_without_tls(secured: SecurePeer, client: Client, mechanism: str) -> None:
    round_trip(client, access(secured, SASL_PLAINTEXT, "alice", mechanism))


@every_client
def test_tls_with_client_certificate(secured: SecurePeer, client: Client) -> None:
    round_trip(client, access(secured, SSL, "alice"))


@every_client
def test_tls_without_client_certificate(lenient: SecurePeer, client: Client) -> None:
    round_trip(client, access(lenient, SSL, ""))


def round_trip(client: Client, way_in: Access) -> None:
    """Create, produce and consume, all as the same user."""
    topic, group = unique_name(OPEN + "topic"), unique_name(OPEN + "group")
    values = [f"value-{number}" for number in range(COUNT)]
    creator = Librdkafka() if client.name == "kcat" else client
    creator.create(way_in, topic)
    assert client.produce(way_in, topic, values) is None
    assert client.consume(way_in, topic, group, COUNT) == values


@pytest.mark.usefixtures("kcat")
def test_scram_that_repeats_the_nonce_is_refused(secured: SecurePeer) -> None:
    """librdkafka up to 2.6.0 sends the client's nonce twice (CVE-2024-56128)."""
    client = Kcat()
    if client.librdkafka_version() >= (2, 6, 1):
        pytest.skip("this kcat sends the nonce as it should")
    assert client.refusal(access(secured, SASL_SSL, "alice", SCRAM_256)) == "SASL authentication error"
