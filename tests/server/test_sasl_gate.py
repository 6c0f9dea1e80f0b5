"""The gate of SASL listeners: requests of untrusted clients, the end of each mechanism, and what a session allows."""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from kafscale.formats.quota_record import DEFAULT, QuotaEntity, encode_quotas, quota_key
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.security.access import Access
from kafscale.security.principal import Principal
from tests.support import wire
from tests.support.in_process_broker import (
    Client,
    ConnectionEndedError,
    InProcessBroker,
    in_process_broker,
    until,
)
from tests.support.sasl import (
    ALICE,
    PASSWORD,
    WRONG_PASSWORD_TEXT,
    add_user,
    api_versions,
    authenticate,
    handshake,
    log_in_plain,
    log_in_scram,
    plain_token,
    raw_frame,
    sasl_broker,
)
from tests.support.topics import create_topics_request

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DELAY_MS = 30


@contextlib.asynccontextmanager
async def broker_with_alice(**settings: Any) -> AsyncIterator[InProcessBroker]:
    settings.setdefault("connection_failed_authentication_delay_ms", DELAY_MS)
    async with sasl_broker(MECHANISMS, **settings) as broker:
        await add_user(broker)
        yield broker


@pytest.fixture
async def broker() -> AsyncIterator[InProcessBroker]:
    async with broker_with_alice() as broker:
        yield broker


async def metadata(client: Client) -> Any:
    return await client.call(MetadataRequest(topics=[]), MetadataResponse, 5)


async def ends(client: Client) -> bool:
    """True if the broker closes the connection, whatever it sends before."""
    try:
        while True:
            await client.receive_frame()
    except ConnectionEndedError:
        return True


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram_client_with_its_password_gets_in(broker: InProcessBroker, mechanism: str) -> None:
    async with broker.connect() as client:
        await api_versions(client)
        answer = await log_in_scram(client, mechanism=mechanism)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert (await metadata(client)).brokers
    counters = broker.metrics.authentications["SASL_PLAINTEXT"]
    assert counters.successful == {mechanism: 1}


async def test_plain_client_with_its_password_gets_in(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        answer = await log_in_plain(client)
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert (await metadata(client)).brokers


async def test_access_is_that_of_the_authenticated_user(broker: InProcessBroker) -> None:
    asked: list[Principal] = []
    listener = broker.process.basics.listener
    before = listener.access_of

    def access_of(principal: Principal, host: str) -> Access:
        asked.append(principal)
        return before(principal, host)

    listener.access_of = access_of
    async with broker.connect() as client:
        await log_in_plain(client)
    assert [str(one) for one in asked] == ["User:ANONYMOUS", "User:alice"]


@pytest.mark.parametrize("name", [ALICE, "nobody"])
async def test_wrong_password_and_unknown_user_look_alike(broker: InProcessBroker, name: str) -> None:
    async with broker.connect() as client:
        await handshake(client, "PLAIN")
        began = time.monotonic()
        answer = await authenticate(client, plain_token(name, "wrong"))
        took_ms = (time.monotonic() - began) * 1000
        assert (answer.error_code, answer.error_message) == (58, WRONG_PASSWORD_TEXT)
        assert took_ms >= DELAY_MS - 2
        assert await client.closed_by_peer()
    async with broker.connect() as client:
        answer = await log_in_scram(client, name, "wrong")
        assert (answer.error_code, answer.error_message) == (
            58,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            "SCRAM-SHA-256",
        )
        assert await client.closed_by_peer()


async def test_unknown_mechanism_is_refused_with_the_list(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        answer = await handshake(client, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert tuple(answer.mechanisms) == MECHANISMS
        assert await client.closed_by_peer()


async def test_plain_is_not_offered_without_tls() -> None:
    async with sasl_broker(MECHANISMS, allow_plaintext=False) as broker, broker.connect() as client:
        answer = await handshake(client, "PLAIN")
        assert (answer.error_code, tuple(answer.mechanisms)) == (33, MECHANISMS[1:])


@pytest.mark.parametrize(
    ("first", "what"),
    [
        pytest.param("metadata", "a request of another API", id="metadata"),
        pytest.param("token", "a token without a handshake", id="token first"),
    ],
)
async def test_untrusted_client_that_sends_anything_else_is_closed(
    broker: InProcessBroker, first: str, what: str
) -> None:
    async with broker.connect() as client:
        with pytest.raises(ConnectionEndedError):
            await (metadata(client) if first == "metadata" else authenticate(client, b"x"))
    assert broker.metrics.frames_refused["unauthenticated"] == 1


async def test_strangers_use_nobodys_quota(broker: InProcessBroker) -> None:
    quotas = encode_quotas({QuotaKind.REQUEST: 1e-6})
    entity = QuotaEntity(client_id=DEFAULT)
    stored = await broker.metadata.transact([], [Put(quota_key(entity), quotas)])
    await broker.process.serving.view.wait_for(stored.revision, keys.QUOTAS)
    throttled = broker.metrics.throttle(QuotaKind.REQUEST).delay.counts
    for _ in range(10):
        async with broker.connect() as client:
            assert (await api_versions(client)).throttle_time_ms == 0
    assert not sum(throttled)
    async with broker.connect() as client:
        await log_in_plain(client)
        await metadata(client)
        assert sum(throttled) == 1


async def test_endless_api_keys_leave_few_lines(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for key in range(30_000, 30_050):
        async with broker.connect() as client:
            await client.send_bytes(raw_frame(struct.pack(">hhih", key, 0, 1, -1)))
            assert await ends(client)
    lines = [line for line in caplog.records if line.name == "kafscale.audit"]
    assert [line.message for line in lines] == ["authentication failed"]


async def test_another_request_than_a_token_is_in_an_illegal_state(broker: InProcessBroker) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="topic")]
    ask: tuple[Callable[[Client], Awaitable[int]], ...] = (
        lambda client: error_of(handshake(client, "PLAIN")),
        lambda client: error_of(api_versions(client, 2)),
        lambda client: error_of(first_topic(client, topics)),
    )
    for one in ask:
        async with broker.connect() as client:
            await handshake(client, "PLAIN")
            began = time.monotonic()
            assert await one(client) == ErrorCode.ILLEGAL_SASL_STATE
            assert (time.monotonic() - began) * 1000 >= DELAY_MS - 2
            assert await client.closed_by_peer()
    assert broker.metrics.authentications["SASL_PLAINTEXT"].failed == {"PLAIN": len(ask)}


async def error_of(asking: Awaitable[Any]) -> int:
    return int((await asking).error_code)


async def first_topic(client: Client, topics: list[Any]) -> Any:
    answer = await client.call(MetadataRequest(topics=topics), MetadataResponse, 9)
    assert not answer.brokers
    return answer.topics[0]


async def test_request_that_no_client_sends_for_a_token_is_closed(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        await handshake(client, "PLAIN")
        with pytest.raises(ConnectionEndedError):
            await client.call(create_topics_request("topic", 1, None), CreateTopicsResponse, 7)
    assert broker.metrics.frames_refused["unauthenticated"] == 1


async def test_malformed_request_for_a_token_is_closed(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        await handshake(client, "PLAIN")
        header = struct.pack(">hhih", 3, 5, 1, -1)
        await client.send_bytes(struct.pack(">i", len(header) + 4) + header + struct.pack(">i", 1 << 30))
        assert await ends(client)


async def test_large_frame_is_refused_before_authentication_only(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        await client.send_bytes(struct.pack(">i", 64 * 1024 + 1))
        assert await ends(client)
    assert broker.metrics.frames_refused["too_large"] == 1
    async with broker.connect() as client:
        await log_in_plain(client)
        names = [MetadataRequest.MetadataRequestTopic(name=f"topic-{index:06}") for index in range(8_000)]
        reply = await client.call(
            MetadataRequest(topics=names, allow_auto_topic_creation=False), MetadataResponse, 5
        )
        assert len(reply.topics) == 8_000


async def test_silent_untrusted_client_is_closed_in_time() -> None:
    async with broker_with_alice(sasl_authentication_timeout_ms=100) as broker:
        async with broker.connect() as silent, broker.connect() as known:
            await log_in_plain(known)
            assert await ends(silent)
            assert (await metadata(known)).brokers
        assert broker.metrics.frames_refused["too_slow"] == 1


async def test_handshake_of_version_0_is_followed_by_raw_tokens(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        reply = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 0)
        assert reply.error_code == 0
        await client.send_bytes(raw_frame(plain_token()))
        assert await client.receive_frame() == b""
        assert (await metadata(client)).brokers


async def test_wrong_raw_token_ends_the_connection(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        await client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 0)
        await client.send_bytes(raw_frame(plain_token(password="wrong")))
        with pytest.raises(ConnectionEndedError):
            await client.receive_frame()
    assert broker.metrics.authentications["SASL_PLAINTEXT"].failed == {"PLAIN": 1}


async def test_handshake_after_authentication_is_in_an_illegal_state(broker: InProcessBroker) -> None:
    async with broker.connect() as client:
        await log_in_plain(client)
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(client, plain_token())).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await metadata(client)).brokers


async def test_sasl_on_a_listener_without_it_is_in_an_illegal_state() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_client_authenticates_itself_again_in_its_session() -> None:
    async with broker_with_alice(connections_max_reauth_ms=60_000) as broker, broker.connect() as client:
        assert (await log_in_plain(client)).session_lifetime_ms == 60_000
        await add_user(broker, "rotated")
        assert (await log_in_plain(client, password="rotated")).session_lifetime_ms == 60_000
        assert (await metadata(client)).brokers
        counters = broker.metrics.authentications["SASL_PLAINTEXT"]
        assert (counters.successful, counters.successful_again) == ({"PLAIN": 1}, {"PLAIN": 1})


async def test_session_that_has_expired_ends_with_the_next_request() -> None:
    async with broker_with_alice(connections_max_reauth_ms=1) as broker:
        async with broker.connect() as client:
            await log_in_plain(client)
            await asyncio.sleep(0.01)
            with pytest.raises(ConnectionEndedError):
                await metadata(client)
        assert broker.metrics.authentications["SASL_PLAINTEXT"].expired == 1


@pytest.mark.parametrize(
    ("mechanism", "name", "text"),
    [
        pytest.param("PLAIN", "bob", "Cannot change principals during re-authentication", id="user"),
        pytest.param("SCRAM-SHA-256", ALICE, "is not supported for re-authentication", id="mechanism"),
    ],
)
async def test_another_identity_is_refused_again(mechanism: str, name: str, text: str) -> None:
    async with broker_with_alice(connections_max_reauth_ms=60_000) as broker:
        await add_user(broker, name="bob")
        async with broker.connect() as client:
            await log_in_plain(client)
            await handshake(client, mechanism)
            answer = await authenticate(client, plain_token(name))
            assert answer.error_code == 58
            assert text in answer.error_message
            assert await client.closed_by_peer()
        assert sum(broker.metrics.authentications["SASL_PLAINTEXT"].failed_again.values()) == 1


async def test_removed_user_stays_out(broker: InProcessBroker) -> None:
    result = await broker.metadata.transact([], [Delete(keys.user(ALICE))])
    await broker.process.serving.view.wait_for(result.revision, "users/")
    async with broker.connect() as client:
        assert (await log_in_plain(client)).error_code == 58


async def test_no_secret_is_logged(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with broker.connect() as client:
        await log_in_plain(client)
    async with broker.connect() as client:
        await log_in_plain(client, password="not-hers")
    await until(lambda: "authentication failed" in caplog.text, "the failure is logged")
    shown = "".join(str(vars(record)) for record in caplog.records)
    assert "User:alice" in shown
    assert PASSWORD not in shown
    assert "not-hers" not in shown


async def test_produce_in_flight_is_answered_before_the_new_handshake() -> None:
    async with broker_with_alice(connections_max_reauth_ms=60_000) as broker, broker.connect() as client:
        await log_in_plain(client)
        create = create_topics_request("topic", 1, None)
        assert (await client.call(create, CreateTopicsResponse, 7)).topics[0].error_code == 0
        await until(lambda: broker.process.serving.logs.partition("topic", 0) is not None, "it is led")
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send(
                wire.produce_request("topic", {0: wire.batch([b"value"])}), wire.PRODUCE_VERSION
            )
            await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            await hold.reached()
            hold.release()
            produced = await client.receive(ProduceResponse, wire.PRODUCE_VERSION)
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert (await client.receive(SaslHandshakeResponse, 1)).error_code == 0
        assert (await authenticate(client, plain_token())).error_code == 0
        assert (await metadata(client)).brokers
