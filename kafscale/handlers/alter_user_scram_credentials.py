"""AlterUserScramCredentials (51), version 0: sets and deletes users' SCRAM credentials (KIP-554).

The client sends the salted password, of which StoredKey and ServerKey are made and kept. A request may name a user
once. Each user is changed by itself; every broker serves it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafscale.cluster.user_updates import CredentialChanges
from kafscale.formats.user_record import (
    MAX_ITERATIONS,
    MAX_NAME_CHARACTERS,
    MAX_SALT_BYTES,
    MIN_ITERATIONS,
    ScramMechanism,
)
from kafscale.handlers.describe_user_scram_credentials import NOT_ALLOWED
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.audit import changed
from kafscale.security.scram import credential_of_salted
from kafscale.serving.config_resources import ALTER_TIMEOUT_MS
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult

MAX_CHANGES: Final = 10_000
"""Credentials in one request, as in Kafka (`MAX_RECORDS_PER_USER_OP`)."""

_TWICE: Final = "A user credential cannot be altered twice in the same request"


async def handle(
    broker: "Broker", request: "RequestContext", message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change each user's credential."""
    asked: dict[str, _Deletion | _Upsertion] = {}
    again: set[str] = set()
    changes: list[_Deletion | _Upsertion] = [*message.deletions, *message.upsertions]
    async for one in in_turns(changes):
        if asked.setdefault(one.name, one) is not one:
            again.add(one.name)
    may = request.access.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)

    async def alter(name: str) -> _Result:
        try:
            if not may:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED)
            if len(changes) > MAX_CHANGES:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"More than {MAX_CHANGES} credentials in one request."
                )
            if name in again:
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            await broker.user_updates.alter(name, changes_of(asked[name]), timeout_ms=ALTER_TIMEOUT_MS)
        except KafkaError as refusal:
            return _Result(user=name, error_code=refusal.code, error_message=refusal.message or None)
        return _Result(user=name, error_code=ErrorCode.NONE, error_message=None)

    results = await for_each(asked, alter)
    done = [result.user for result in results if not result.error_code]
    changed(request.access.principal, request.client_host, "user credentials changed", done)
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def changes_of(one: _Deletion | _Upsertion) -> CredentialChanges:
    """The change that a client asks for. Raises `KafkaError`."""
    if not one.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(one.name) > MAX_NAME_CHARACTERS:
        problem = f"Username must have at most {MAX_NAME_CHARACTERS} characters"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    try:
        mechanism = ScramMechanism(one.mechanism)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(one, _Deletion):
        return {mechanism: None}
    problems = list(_problems(one, mechanism))
    if problems:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problems[0])
    salted, salt = bytes(one.salted_password), bytes(one.salt)
    return {mechanism: credential_of_salted(mechanism, salted, salt, one.iterations)}


def _problems(one: _Upsertion, mechanism: ScramMechanism) -> Iterator[str]:
    if one.iterations < MIN_ITERATIONS:
        yield "Too few iterations"
    if one.iterations > MAX_ITERATIONS:
        yield "Too many iterations"
    if not 1 <= len(one.salt) <= MAX_SALT_BYTES:
        yield f"The salt must have 1 to {MAX_SALT_BYTES} bytes"
    if len(one.salted_password) != mechanism.hash_bytes:
        yield f"The salted password must have {mechanism.hash_bytes} bytes"
