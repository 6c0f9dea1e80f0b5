"""CreateAcls (30), versions 1 to 3: access rules are added; one that is there already stays.

v1: pattern types (KIP-290). v2: flexible. v3: a resource type, USER (KIP-373). Without an authorizer
SECURITY_DISABLED, as Kafka answers then.
"""

import logging
from typing import TYPE_CHECKING

from kafscale.errors import StoreError
from kafscale.formats.acl_record import AclBinding, problem_of
from kafscale.protocol.acl_codes import Operation, PatternType, Permission, ResourceType
from kafscale.protocol.api_messages import CreateAclsRequest, CreateAclsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.acl_store import MAX_CHANGES, AclStore
from kafscale.security.audit import changed
from kafscale.serving.acl_requests import code_of, rules_for, text_of
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

_Result = CreateAclsResponse.AclCreationResult


async def handle(
    broker: "Broker", request: "RequestContext", message: CreateAclsRequest
) -> CreateAclsResponse:
    """Store the rules that are legal; answered when this broker decides by them."""
    try:
        acls = rules_for(broker, request, Operation.ALTER)
        if len(message.creations) > MAX_CHANGES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Cannot create more than {MAX_CHANGES} acls in a single operation.",
            )
    except KafkaError as refusal:
        # One answer for all.
        refused = _Result(error_code=refusal.code, error_message=refusal.message)
        return CreateAclsResponse(results=[refused] * len(message.creations))
    rules = [_rule(creation) async for creation in in_turns(message.creations)]
    problems = [problem_of(rule) async for rule in in_turns(rules)]
    legal = dict.fromkeys(rule for rule, problem in zip(rules, problems, strict=True) if problem is None)
    outcome = await _create(acls, list(legal))
    if outcome.error_code == ErrorCode.NONE:
        texts = [text_of(rule) for rule in legal]
        changed(request.access.principal, request.client_host, "access rules created", texts)
    return CreateAclsResponse(
        results=[
            outcome
            if problem is None
            else _Result(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
            for problem in problems
        ]
    )


async def _create(acls: AclStore, rules: list[AclBinding]) -> _Result:
    """The result of each rule. After a failure some may be stored; their creation may be repeated."""
    try:
        async with store_deadline():
            await acls.create(rules)
    except StoreError as problem:
        logger.warning("could not create access rules", extra={"problem": str(problem)})
        return _Result(
            error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="The metadata store did not answer in time."
        )
    return _Result(error_code=ErrorCode.NONE, error_message=None)


def _rule(creation: CreateAclsRequest.AclCreation) -> AclBinding:
    return AclBinding(
        code_of(ResourceType, creation.resource_type),
        code_of(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        code_of(Operation, creation.operation),
        code_of(Permission, creation.permission_type),
    )
