"""Clients as they are, over SASL: each mechanism, a rotated password, rotated keys, and an expired session."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import _scram as scram
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from kafscale.protocol.listeners import SecurityProtocol
from tests.support.in_process_broker import InProcessBroker, until
from tests.support.sasl import ALICE, PASSWORD, add_user, sasl_broker
from tests.support.tls_files import TlsFolder
from tests.support.token_issuer import AUDIENCE, ISSUER, TokenIssuer, token_issuer

TOPIC = "topic"
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TIMEOUT_SEC = 20


@pytest.fixture
async def broker() -> AsyncIterator[InProcessBroker]:
    async with sasl_broker(ALL) as broker:
        await add_user(broker)
        await create_topic(broker)
        yield broker


async def create_topic(broker: InProcessBroker, **login: Any) -> None:
    def create() -> None:
        admin = AdminClient(confluent(broker, **login))
        for future in admin.create_topics([NewTopic(TOPIC, 1)]).values():
            future.result(TIMEOUT_SEC)

    await asyncio.to_thread(create)


def confluent(
    broker: InProcessBroker, mechanism: str = "PLAIN", password: str = PASSWORD, **more: Any
) -> Any:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": ALICE,
        "sasl.password": password,
        **more,
    }


def produce_with_confluent(config: dict[str, Any]) -> None:
    """Raises `KafkaException` unless a record is acknowledged."""
    problems: list[Any] = []
    producer = Producer({**config, "error_cb": problems.append, "message.timeout.ms": 15_000})
    delivered: list[Any] = []
    producer.produce(TOPIC, b"value", on_delivery=lambda error, message: delivered.append(error))
    deadline = time.monotonic() + TIMEOUT_SEC
    while not delivered and not any(one.name() == "_AUTHENTICATION" for one in problems):
        assert time.monotonic() < deadline, problems
        producer.poll(0.05)
    failed = [*problems, *(error for error in delivered if error is not None)]
    if not delivered or delivered[0] is not None:
        producer.purge()
        raise KafkaException(failed[0])


def produce_with_kafka_python(broker: InProcessBroker, mechanism: str, **tls: Any) -> None:
    producer = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        security_protocol="SASL_SSL" if tls else "SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=ALICE,
        sasl_plain_password=PASSWORD,
        max_block_ms=10_000,
        **tls,
    )
    try:
        producer.send(TOPIC, b"value").get(TIMEOUT_SEC)
    finally:
        producer.close(timeout=5)


async def produce_with_aiokafka(broker: InProcessBroker, **login: Any) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=f"127.0.0.1:{broker.port}", security_protocol="SASL_PLAINTEXT", **login
    )
    try:
        await producer.start()
        await producer.send_and_wait(TOPIC, b"value")
    finally:
        await producer.stop()


@pytest.mark.parametrize("mechanism", ALL)
async def test_each_client_produces_by_each_mechanism(broker: InProcessBroker, mechanism: str) -> None:
    await asyncio.to_thread(produce_with_confluent, confluent(broker, mechanism))
    await asyncio.to_thread(produce_with_kafka_python, broker, mechanism)
    await produce_with_aiokafka(
        broker, sasl_mechanism=mechanism, sasl_plain_username=ALICE, sasl_plain_password=PASSWORD
    )
    counters = broker.metrics.authentications["SASL_PLAINTEXT"]
    assert counters.successful[mechanism] >= 3
    assert not counters.failed


@pytest.mark.parametrize("mechanism", ALL)
async def test_each_client_produces_over_tls(mechanism: str, tmp_path: Path) -> None:
    files = TlsFolder(tmp_path / "tls")
    authorities = str(tmp_path / "authorities.pem")
    files.authority.cert_pem.write_to_path(authorities)
    async with sasl_broker(
        ALL, SecurityProtocol.SASL_SSL, allow_plaintext=False, auto_create_topics=True, **files.settings
    ) as broker:
        await add_user(broker)
        over_tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": authorities}
        await asyncio.to_thread(produce_with_confluent, confluent(broker, mechanism) | over_tls)
        await asyncio.to_thread(produce_with_kafka_python, broker, mechanism, ssl_cafile=authorities)
        producer = AIOKafkaProducer(
            bootstrap_servers=f"localhost:{broker.port}",
            security_protocol="SASL_SSL",
            ssl_context=files.client_context(),
            sasl_mechanism=mechanism,
            sasl_plain_username=ALICE,
            sasl_plain_password=PASSWORD,
        )
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"value")
        finally:
            await producer.stop()
        assert broker.metrics.authentications["SASL_SSL"].successful[mechanism] >= 3


@pytest.mark.parametrize("mechanism", ALL)
async def test_wrong_password_is_an_authentication_error(broker: InProcessBroker, mechanism: str) -> None:
    with pytest.raises(KafkaException, match=r"_AUTHENTICATION|[Aa]uthentication failed"):
        await asyncio.to_thread(produce_with_confluent, confluent(broker, mechanism, "wrong"))
    login = {"sasl_plain_username": ALICE, "sasl_plain_password": "wrong"}
    with pytest.raises(KafkaConnectionError):
        await produce_with_aiokafka(broker, sasl_mechanism=mechanism, **login)


async def test_librdkafka_without_sasl_authenticate_uses_raw_tokens(broker: InProcessBroker) -> None:
    old: Any = {"api.version.request": False, "broker.version.fallback": "0.10.2.0"}
    await asyncio.to_thread(produce_with_confluent, confluent(broker, "SCRAM-SHA-512", **old))


async def test_users_are_administered_by_librdkafka(broker: InProcessBroker) -> None:
    def administer() -> dict[str, Any]:
        admin = AdminClient(confluent(broker))
        info = scram.ScramCredentialInfo(scram.ScramMechanism.SCRAM_SHA_512, 8192)
        upsertion = scram.UserScramCredentialUpsertion("bob", info, b"bobs")
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(TIMEOUT_SEC)
        as_bob = confluent(broker, "SCRAM-SHA-512", "bobs") | {"sasl.username": "bob"}
        produce_with_confluent(as_bob)
        asked: Any = admin.describe_user_scram_credentials(["bob"])
        described = asked["bob"].result(TIMEOUT_SEC)
        deletion = scram.UserScramCredentialDeletion("bob", scram.ScramMechanism.SCRAM_SHA_512)
        for future in admin.alter_user_scram_credentials([deletion]).values():
            future.result(TIMEOUT_SEC)
        with pytest.raises(KafkaException):
            produce_with_confluent(as_bob)
        return {str(one.mechanism): one.iterations for one in described.scram_credential_infos}

    assert await asyncio.to_thread(administer) == {"ScramMechanism.SCRAM_SHA_512": 8192}


async def test_password_is_rotated_under_load(broker: InProcessBroker) -> None:
    """Who is connected stays so, and whoever comes uses the new password: no request fails."""
    stop, sent = asyncio.Event(), 0

    async def load() -> None:
        nonlocal sent
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=ALICE,
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            while not stop.is_set():
                await producer.send_and_wait(TOPIC, b"value")
                sent += 1
        finally:
            await producer.stop()

    loading = asyncio.create_task(load())
    await until(lambda: sent >= 5 or loading.done(), "the load has begun")
    for index in range(3):
        await add_user(broker, f"rotated-{index}")
        before = sent
        login = {"sasl_plain_username": ALICE, "sasl_plain_password": f"rotated-{index}"}
        await produce_with_aiokafka(broker, sasl_mechanism="SCRAM-SHA-256", **login)
        await until(lambda: sent >= before + 5 or loading.done(), "the load goes on")  # noqa: B023
    stop.set()
    await loading
    assert not broker.metrics.authentications["SASL_PLAINTEXT"].failed


async def test_librdkafka_authenticates_itself_again() -> None:
    # librdkafka begins when a tenth of a session is left: so long may a process stand still.
    async with sasl_broker(ALL, connections_max_reauth_ms=4_000) as broker:
        await add_user(broker)
        await create_topic(broker)

        def produce_for_a_while() -> None:
            problems: list[Any] = []
            producer = Producer(confluent(broker, "SCRAM-SHA-256") | {"error_cb": problems.append})
            failed: list[Any] = []

            def delivered(error: Any, message: Any) -> None:
                if error is not None:
                    failed.append(error)

            deadline = time.monotonic() + TIMEOUT_SEC
            while broker.metrics.authentications["SASL_PLAINTEXT"].successful_again.total() < 2:
                assert time.monotonic() < deadline
                producer.produce(TOPIC, b"value", on_delivery=delivered)
                producer.poll(0.02)
            assert producer.flush(TIMEOUT_SEC) == 0
            assert (problems, failed) == ([], [])

        await asyncio.to_thread(produce_for_a_while)
        assert broker.metrics.authentications["SASL_PLAINTEXT"].expired == 0


# --- OAUTHBEARER


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer("one") as issuer:
        yield issuer


def oauth(broker: InProcessBroker, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (token(), time.time() + 300),
    }


async def test_tokens_let_clients_in_while_keys_are_rotated(issuer: TokenIssuer) -> None:
    async with sasl_broker(
        ("OAUTHBEARER",),
        sasl_oauthbearer_jwks_endpoint_url=issuer.url,
        sasl_oauthbearer_expected_audience=(AUDIENCE,),
        sasl_oauthbearer_expected_issuer=ISSUER,
        auto_create_topics=True,
    ) as broker:
        await asyncio.to_thread(produce_with_confluent, oauth(broker, lambda: issuer.token("one")))

        issuer.add_key("two")
        await asyncio.to_thread(produce_with_confluent, oauth(broker, lambda: issuer.token("two")))
        issuer.remove_key("one")

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return issuer.token("two")

        await produce_with_aiokafka(
            broker, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider()
        )
        assert not broker.metrics.authentications["SASL_PLAINTEXT"].failed

        expired = oauth(broker, lambda: issuer.token("two", life_sec=-100))
        with pytest.raises(KafkaException, match="invalid_token"):
            await asyncio.to_thread(produce_with_confluent, expired)
        await asyncio.to_thread(produce_with_confluent, oauth(broker, lambda: issuer.token("two")))
