"""DescribeUserScramCredentials (50), version 0: users' SCRAM mechanisms and iterations, never a secret (KIP-554)."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafscale.formats.user_record import UserRecord
from kafscale.metadata import keys
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quoting import quoted
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult

NOT_ALLOWED: Final = "Cluster authorization failed."


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The users that are named, each once; without names all."""
    if not request.access.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=NOT_ALLOWED, results=[]
        )
    users = broker.view.users
    if message.users:
        asked = Counter([user.name async for user in in_turns(message.users)])
        results = [
            _result(name, count, users.get(keys.user(name))) async for name, count in in_turns(asked.items())
        ]
    else:
        known = [watched.record for watched in users.items().values()]
        results = [_result(record.name, 1, record) async for record in in_turns(known)]
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results
    )


def _result(name: str, count: int, record: UserRecord | None) -> _Result:
    shown = quoted(name)
    if count > 1:
        problem = f"Cannot describe SCRAM credentials for the same user twice in a single request: {shown}"
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, problem)
    if record is None or not record.scram:
        problem = f"Attempt to describe a user credential that does not exist: {shown}"
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, problem)
    return _Result(
        user=name,
        error_code=ErrorCode.NONE,
        error_message=None,
        credential_infos=[
            _Result.CredentialInfo(mechanism=int(mechanism), iterations=credential.iterations)
            for mechanism, credential in sorted(record.scram.items())
        ],
    )


def _refused(name: str, code: ErrorCode, problem: str) -> _Result:
    return _Result(user=name, error_code=code, error_message=problem, credential_infos=[])
