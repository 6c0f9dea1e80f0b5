"""Who is kept out, and how each client says so: passwords, tokens, mechanisms, certificates."""

import pytest

from tests.compat.security.clients import Client
from tests.compat.security.clients.librdkafka import Librdkafka
from tests.compat.security.conftest import BAD_CLAIMS, CLIENTS
from tests.support.certificates import Certificates
from tests.support.nightly import nightly_but
from tests.support.oauth_server import OauthServer
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import OAUTH, PLAIN, SASL_SSL, SCRAM_256, SSL, Access

every_client = pytest.mark.parametrize("client", CLIENTS, indirect=True)
# kafka-python tries again for two seconds, as fast as it can.
BY_DAY = [name for name in CLIENTS if name != "kafka-python"]
others_by_day = pytest.mark.parametrize("client", nightly_but(CLIENTS, *BY_DAY), indirect=True)

# kafka-python may see only that the connection was closed.
REFUSED_PASSWORD = {
    "java": {"SaslAuthenticationException"},
    "librdkafka": {"_AUTHENTICATION"},
    "kafka-python": {"SaslAuthenticationFailed", "KafkaTimeoutError"},
    "aiokafka": {"SaslAuthenticationFailed"},
    "franz-go": {"SASL_AUTHENTICATION_FAILED"},
    "kafkajs": {"KafkaJSSASLAuthenticationError"},
    "kcat": {"SASL authentication error"},
}
# After a refused token two go on with a request of another kind. It is answered with ILLEGAL_SASL_STATE, which
# aiokafka overlooks, and the connection is closed.
REFUSED_TOKEN = REFUSED_PASSWORD | {
    "aiokafka": {"UnknownTopicOrPartitionError"},
    "franz-go": {"unexpected data in oauth response"},
    "kafkajs": {"ILLEGAL_SASL_STATE"},
}
REFUSED_MECHANISM = {
    "java": {"UnsupportedSaslMechanismException"},
    "librdkafka": {"_AUTHENTICATION"},
    "kafka-python": {"UnsupportedSaslMechanism", "KafkaTimeoutError"},
    "aiokafka": {"UnsupportedSaslMechanism"},
    "franz-go": {"UNSUPPORTED_SASL_MECHANISM"},
    "kafkajs": {"UNSUPPORTED_SASL_MECHANISM"},
    "kcat": {"mechanism handshake failed"},
}
REFUSED_SERVER = {
    "java": {"SslAuthenticationException"},
    "librdkafka": {"_SSL", "_TRANSPORT"},
    "kafka-python": {"CERTIFICATE_VERIFY_FAILED"},
    "aiokafka": {"CERTIFICATE_VERIFY_FAILED"},
    "franz-go": {"certificate verification"},
    "kafkajs": {"KafkaJSConnectionError"},
    "kcat": {"certificate verify failed"},
}
REFUSED_CERTIFICATE = {
    "java": {"SslAuthenticationException"},
    "librdkafka": {"_TRANSPORT"},
    "kafka-python": {"TLS alert"},
    "aiokafka": {"KafkaConnectionError"},
    "franz-go": {"TLS alert"},
    "kafkajs": {"KafkaJSConnectionError"},
    "kcat": {"alert"},
}


@every_client
@pytest.mark.parametrize("mechanism", nightly_but([PLAIN, SCRAM_256], SCRAM_256))
def test_wrong_password(secured: SecurePeer, client: Client, mechanism: str) -> None:
    refused(client, access(secured, SASL_SSL, "alice", mechanism).but(password="wrong"), REFUSED_PASSWORD)


@others_by_day
@pytest.mark.parametrize("mechanism", nightly_but([PLAIN, SCRAM_256], SCRAM_256))
def test_unknown_user(secured: SecurePeer, client: Client, mechanism: str) -> None:
    refused(client, access(secured, SASL_SSL, "alice", mechanism).but(user="nobody"), REFUSED_PASSWORD)


def test_wrong_password_reads_as_unknown_user(secured: SecurePeer) -> None:
    client, right = Librdkafka(), access(secured, SASL_SSL, "alice", SCRAM_256)
    wrong_password = client.refusal_text(right.but(password="wrong"))
    assert wrong_password == client.refusal_text(right.but(user="nobody"))
    assert wrong_password.startswith(
        "SASL authentication error: Authentication failed during authentication due to invalid credentials "
        "with SASL mechanism SCRAM-SHA-256"
    )


@others_by_day
@pytest.mark.parametrize("problem", nightly_but(BAD_CLAIMS, "expired"))
def test_token_with_bad_claims(secured: SecurePeer, oauth: OauthServer, client: Client, problem: str) -> None:
    claims = BAD_CLAIMS[problem]
    way_in = access(secured, SASL_SSL, "alice", OAUTH).but(
        token=oauth.token("alice", **claims), token_url=oauth.token_url_with(**claims)
    )
    refused(client, way_in, REFUSED_TOKEN)


@others_by_day
def test_token_without_signature(secured: SecurePeer, oauth: OauthServer, client: Client) -> None:
    way_in = access(secured, SASL_SSL, "alice", OAUTH)
    refused(client, way_in.but(token=oauth.unsigned_token("alice"), token_url=None), REFUSED_TOKEN)


@others_by_day
def test_mechanism_that_the_broker_lacks(lenient: SecurePeer, client: Client) -> None:
    refused(client, access(lenient, SASL_SSL, "alice", PLAIN), REFUSED_MECHANISM)


def test_broker_names_the_mechanisms_that_it_has(lenient: SecurePeer) -> None:
    text = Librdkafka().refusal_text(access(lenient, SASL_SSL, "alice", PLAIN))
    assert "broker's supported mechanisms: SCRAM-SHA-512,OAUTHBEARER" in text


@others_by_day
def test_server_of_an_unknown_authority(
    secured: SecurePeer, certificates: Certificates, client: Client
) -> None:
    way_in = access(secured, SASL_SSL, "alice", PLAIN).but(ca=str(certificates.stranger_ca))
    refused(client, way_in, REFUSED_SERVER)


@others_by_day
def test_missing_client_certificate(secured: SecurePeer, client: Client) -> None:
    way_in = access(secured, SSL, "alice").but(cert=None, key=None, cert_and_key=None)
    refused(client, way_in, REFUSED_CERTIFICATE)


@others_by_day
def test_client_certificate_of_an_unknown_authority(
    secured: SecurePeer, certificates: Certificates, client: Client
) -> None:
    stranger = certificates.stranger("alice")
    way_in = access(secured, SSL, "alice").but(
        cert=str(stranger.cert), key=str(stranger.key), cert_and_key=str(stranger.both)
    )
    refused(client, way_in, REFUSED_CERTIFICATE)


def refused(client: Client, way_in: Access, expected: dict[str, set[str]]) -> None:
    """It is kept out with one of the errors that it is expected to name."""
    assert client.refusal(way_in) in expected[client.name]
