"""AlterUserScramCredentials and DescribeUserScramCredentials, with Kafka's codes and texts, from real messages."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafscale.formats.user_record import MAX_SALT_BYTES, ScramMechanism, UserRecord, encode_user_record
from kafscale.handlers import alter_user_scram_credentials, describe_user_scram_credentials
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.api_messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.security.scram import credential_of, is_password_of
from kafscale.serving.context import ClientSoftware, RequestContext
from tests.support.control_plane import ControlPlane, control_plane

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = b"some salt"
REQUEST = RequestContext(0, 1, "tests", "127.0.0.1", ClientSoftware())


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        yield plane


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, password: bytes = b"secret", **parts: Any
) -> Any:
    hash_name = "sha512" if mechanism == SHA_512 else "sha256"
    salted = hashlib.pbkdf2_hmac(hash_name, password, SALT, max(iterations, 1))
    fields = {"iterations": iterations, "salt": SALT, "salted_password": salted, **parts}
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name=name, mechanism=mechanism, **fields)


def deletion(name: str, mechanism: int = SHA_256) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(plane: ControlPlane, *changes: Any) -> dict[str, tuple[int, str | None]]:
    kind = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    message = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, kind)],
        upsertions=[one for one in changes if not isinstance(one, kind)],
    )
    reply = await alter_user_scram_credentials.handle(plane.broker, REQUEST, message)
    return {one.user: (one.error_code, one.error_message) for one in reply.results}


async def describe(plane: ControlPlane, *names: str) -> dict[str, Any]:
    asked = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    message = DescribeUserScramCredentialsRequest(users=asked or None)
    reply = await describe_user_scram_credentials.handle(plane.broker, REQUEST, message)
    assert reply.error_code == 0
    return {
        one.user: one.error_code or {info.mechanism: info.iterations for info in one.credential_infos}
        for one in reply.results
    }


async def test_credential_is_set_replaced_and_deleted(plane: ControlPlane) -> None:
    assert await alter(plane, upsertion("alice"), upsertion("bob", SHA_512, 8192)) == {
        "alice": (0, None),
        "bob": (0, None),
    }
    assert await describe(plane) == {"alice": {SHA_256: 4096}, "bob": {SHA_512: 8192}}
    await alter(plane, upsertion("alice", SHA_512), upsertion("bob", SHA_512, 5000))
    assert await describe(plane, "alice", "bob") == {
        "alice": {SHA_256: 4096, SHA_512: 4096},
        "bob": {SHA_512: 5000},
    }
    assert await alter(plane, deletion("alice"), deletion("bob", SHA_512)) == {
        "alice": (0, None),
        "bob": (0, None),
    }
    assert await describe(plane) == {"alice": {SHA_512: 4096}}
    assert await plane.store.get(keys.user("bob")) is None


async def test_what_is_stored_is_the_credential_of_the_password(plane: ControlPlane) -> None:
    await alter(plane, upsertion("alice", SHA_512, password=b"secret"))
    record = plane.view.users.get(keys.user("alice"))
    assert record is not None
    credential = record.scram[SHA_512]
    assert credential == credential_of(SHA_512, b"secret", SALT, 4096)
    assert is_password_of(credential, SHA_512, b"secret")
    assert not is_password_of(credential, SHA_512, b"Secret")


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "at most 1024 characters"),
        (upsertion("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion("a", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt"),
        (upsertion("a", salt=bytes(MAX_SALT_BYTES + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL, "salt"),
        (upsertion("a", salted_password=b"x"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "32 bytes"),
        (upsertion("a", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("a", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            deletion("a"),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (deletion("a", 7), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
async def test_illegal_change_is_refused_alone(
    plane: ControlPlane, change: Any, code: ErrorCode, text: str
) -> None:
    answers = await alter(plane, change, upsertion("other"))
    refused, problem = answers[change.name]
    assert refused == code
    assert text in (problem or "")
    assert answers["other"] == (0, None)
    assert await describe(plane) == {"other": {SHA_256: 4096}}


async def test_user_that_is_named_twice_is_not_changed(plane: ControlPlane) -> None:
    twice = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    await alter(plane, upsertion("bob"))
    answers = await alter(
        plane,
        upsertion("alice"),
        upsertion("alice", SHA_512),
        deletion("bob"),
        upsertion("bob"),
        upsertion("eve"),
    )
    assert answers == {"alice": twice, "bob": twice, "eve": (0, None)}
    assert await describe(plane) == {"bob": {SHA_256: 4096}, "eve": {SHA_256: 4096}}


async def test_description_of_unknown_and_repeated_users_is_refused(plane: ControlPlane) -> None:
    await alter(plane, upsertion("alice"), upsertion("bob"))
    assert await describe(plane, "alice", "nobody", "bob", "bob") == {
        "alice": {SHA_256: 4096},
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
    }


async def test_user_beyond_the_limit_is_refused(plane: ControlPlane) -> None:
    await alter(plane, *(upsertion(f"user-{index}") for index in range(10)))
    answers = await alter(plane, upsertion("one more"))
    assert answers["one more"][0] == ErrorCode.POLICY_VIOLATION
    assert await alter(plane, upsertion("user-3", iterations=5000)) == {"user-3": (0, None)}


async def test_too_many_changes_are_refused_at_once(plane: ControlPlane) -> None:
    answers = await alter(plane, *(deletion(f"user-{index}") for index in range(10_001)))
    assert {code for code, _ in answers.values()} == {ErrorCode.INVALID_REQUEST}


async def test_damaged_record_is_replaced(plane: ControlPlane) -> None:
    result = await plane.store.transact([], [Put(keys.user("alice"), b"damaged")])
    await plane.view.wait_for(result.revision, keys.USERS)
    assert await describe(plane, "alice") == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert await alter(plane, upsertion("alice")) == {"alice": (0, None)}
    assert await describe(plane) == {"alice": {SHA_256: 4096}}


async def test_record_of_a_later_release_is_not_replaced(plane: ControlPlane) -> None:
    later = encode_user_record(UserRecord("alice", {})).replace(b'"version":1', b'"version":2')
    await plane.store.transact([], [Put(keys.user("alice"), later)])
    assert (await alter(plane, upsertion("alice")))["alice"][0] == ErrorCode.KAFKA_STORAGE_ERROR


async def test_client_without_the_right_is_refused(plane: ControlPlane) -> None:
    class Nothing:
        principal = REQUEST.access.principal
        is_restricted = True

        def allows(self, *asked: object, **more: object) -> bool:
            return False

        def allows_any(self, *asked: object) -> bool:
            return False

        def operations(self, *asked: object) -> int:
            return 0

        def in_request(self, _: object) -> "Nothing":
            return self

    request: Any = REQUEST._replace(access=Nothing())
    altered = await alter_user_scram_credentials.handle(
        plane.broker, request, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("a")])
    )
    assert [one.error_code for one in altered.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    described = await describe_user_scram_credentials.handle(
        plane.broker, request, DescribeUserScramCredentialsRequest(users=None)
    )
    assert (described.error_code, described.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
