"""DeleteAcls (31), versions 1 to 3: the access rules that filters mean are deleted.

v1: pattern types (KIP-290). v2: flexible. v3: a resource type, USER (KIP-373). Without an authorizer
SECURITY_DISABLED, as Kafka answers then.
"""

import logging
from typing import TYPE_CHECKING, Final

from kafscale.errors import StoreError
from kafscale.formats.acl_record import AclBinding
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import DeleteAclsRequest, DeleteAclsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.acl_filter import AclFilter
from kafscale.security.acl_store import MAX_CHANGES, AclStore, TooManyRulesError
from kafscale.security.audit import changed
from kafscale.serving.acl_requests import filter_of, rules_for, text_of
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

MAX_FILTERS: Final = 1_000
"""Of one request: each reads from the metadata store."""

_Result = DeleteAclsResponse.DeleteAclsFilterResult


async def handle(
    broker: "Broker", request: "RequestContext", message: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Delete the rules of all legal filters; answered when this broker decides without them."""
    results: list[_Result | AclFilter] = []
    try:
        acls = rules_for(broker, request, Operation.ALTER)
        if len(message.filters) > MAX_FILTERS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"More than {MAX_FILTERS} filters in one request.")
    except KafkaError as refusal:
        # One answer for all.
        return DeleteAclsResponse(filter_results=[_failed(refusal)] * len(message.filters))
    for asked in message.filters:
        try:
            results.append(filter_of(asked))
        except KafkaError as refusal:
            results.append(_failed(refusal))
    wanted = list(dict.fromkeys(each for each in results if isinstance(each, AclFilter)))
    try:
        deleted = dict(zip(wanted, await _delete(acls, wanted), strict=True))
    except KafkaError as refusal:
        failed = _failed(refusal)
        return DeleteAclsResponse(
            filter_results=[failed if isinstance(each, AclFilter) else each for each in results]
        )
    texts = [text_of(rule) for rule in dict.fromkeys(rule for rules in deleted.values() for rule in rules)]
    changed(request.access.principal, request.client_host, "access rules deleted", texts)
    answers = {each: await _deleted(rules) for each, rules in deleted.items()}
    return DeleteAclsResponse(
        filter_results=[answers[each] if isinstance(each, AclFilter) else each for each in results]
    )


async def _delete(acls: AclStore, wanted: list[AclFilter]) -> list[list[AclBinding]]:
    """Raises `KafkaError`; some rules may be deleted then, and the request may be repeated."""
    try:
        async with store_deadline():
            return await acls.delete(wanted)
    except TooManyRulesError:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Cannot remove more than {MAX_CHANGES} acls in a single delete operation.",
        ) from None
    except StoreError as problem:
        logger.warning("could not delete access rules", extra={"problem": str(problem)})
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "The metadata store did not answer in time."
        ) from problem


def _failed(refusal: KafkaError) -> _Result:
    return _Result(error_code=refusal.code, error_message=refusal.message, matching_acls=[])


async def _deleted(rules: list[AclBinding]) -> _Result:
    return _Result(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            _Result.DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=int(rule.resource_type),
                resource_name=rule.name,
                pattern_type=int(rule.pattern_type),
                principal=rule.principal,
                host=rule.host,
                operation=int(rule.operation),
                permission_type=int(rule.permission),
            )
            async for rule in in_turns(rules)
        ],
    )
