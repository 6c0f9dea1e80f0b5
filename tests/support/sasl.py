"""Users and raw SASL clients for tests."""

import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kafka.net.sasl.scram import ScramClient
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from kafscale.formats.user_record import MECHANISMS_BY_NAME, ScramMechanism, UserRecord, encode_user_record
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, Put
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.security.scram import DEFAULT_ITERATIONS, credential_of, new_salt
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import NamedAddress
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

ALICE, PASSWORD = "alice", "alice-secret"
WRONG_PASSWORD_TEXT = "Authentication failed: Invalid username or password"


def user_put(
    name: str = ALICE,
    password: str = PASSWORD,
    mechanisms: Sequence[ScramMechanism] = tuple(ScramMechanism),
) -> Put:
    """The operation that gives a user its password."""
    scram = {one: credential_of(one, password.encode(), new_salt(), DEFAULT_ITERATIONS) for one in mechanisms}
    return Put(keys.user(name), encode_user_record(UserRecord(name, scram)))


async def store_user(store: MetadataStore, name: str = ALICE, password: str = PASSWORD) -> int:
    """Give a user its password; returns the revision."""
    return (await store.transact([], [user_put(name, password)])).revision


async def add_user(broker: InProcessBroker, password: str = PASSWORD, name: str = ALICE) -> None:
    """Give a user its password, and wait until the broker knows it."""
    revision = await store_user(broker.metadata, name, password)
    await broker.process.serving.view.wait_for(revision, keys.USERS)


@contextlib.asynccontextmanager
async def sasl_broker(
    mechanisms: tuple[str, ...],
    protocol: SecurityProtocol = SecurityProtocol.SASL_PLAINTEXT,
    *,
    allow_plaintext: bool = True,
    **settings: Any,
) -> AsyncIterator[InProcessBroker]:
    """A broker in this process whose only listener is of this protocol, with PLAIN also without TLS."""
    listener = NamedAddress(ListenerName.parse(protocol), Address("127.0.0.1", 0))
    async with in_process_broker(
        listeners=(listener,), sasl_enabled_mechanisms=mechanisms, allow_plaintext=allow_plaintext, **settings
    ) as broker:
        yield broker


def plain_token(name: str = ALICE, password: str = PASSWORD, authorization_id: str = "") -> bytes:
    return b"\0".join(part.encode() for part in (authorization_id, name, password))


async def handshake(client: Client, mechanism: str, version: int = 1) -> Any:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)


async def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return await client.call(request, SaslAuthenticateResponse, version)


async def log_in_plain(client: Client, name: str = ALICE, password: str = PASSWORD, version: int = 2) -> Any:
    """A handshake and a token; returns the answer to the token."""
    assert (await handshake(client, "PLAIN")).error_code == 0
    return await authenticate(client, plain_token(name, password), version)


async def log_in_scram(
    client: Client, name: str = ALICE, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256"
) -> Any:
    """A handshake and both tokens; returns the answer to the last one."""
    assert mechanism in MECHANISMS_BY_NAME
    assert (await handshake(client, mechanism)).error_code == 0
    scram = ScramClient(name, password, mechanism)
    first = await authenticate(client, scram.first_message())
    assert first.error_code == 0, first
    scram.process_server_first_message(first.auth_bytes)
    final = await authenticate(client, scram.final_message())
    if final.error_code == 0:
        scram.process_server_final_message(final.auth_bytes)
    return final


async def api_versions(client: Client, version: int = 3) -> Any:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    return await client.call(request, ApiVersionsResponse, version)


def raw_frame(token: bytes) -> bytes:
    """A token without a request around it, as after version 0 of the handshake."""
    return struct.pack(">i", len(token)) + token
