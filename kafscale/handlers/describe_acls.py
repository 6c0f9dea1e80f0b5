"""DescribeAcls (29), versions 1 to 3: the access rules that a filter means, by resource.

v1: pattern types (KIP-290). v2: flexible. v3: a resource type, USER (KIP-373). Without an authorizer
SECURITY_DISABLED, as Kafka answers then.
"""

from typing import TYPE_CHECKING, Final

from kafscale.formats.acl_record import AclBinding
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import DescribeAclsRequest, DescribeAclsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.acl_requests import filter_of, rules_for
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MAX_RULES: Final = 100_000
"""In one answer, which takes a hundred megabytes then."""

_Resource = DescribeAclsResponse.DescribeAclsResource
_Resources = dict[tuple[int, str, int], list[AclBinding]]


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeAclsRequest
) -> DescribeAclsResponse:
    """The rules as this broker knows them; POLICY_VIOLATION if they are too many for one answer."""
    try:
        resources = await _find(broker, request, message)
    except KafkaError as refusal:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message, resources=[])
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[
            _Resource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[_description(rule) for rule in rules],
            )
            async for (resource_type, name, pattern_type), rules in in_turns(resources.items())
        ],
    )


async def _find(broker: "Broker", request: "RequestContext", message: DescribeAclsRequest) -> _Resources:
    """The rules by resource type, name and pattern type."""
    stored = rules_for(broker, request, Operation.DESCRIBE).stored
    wanted = filter_of(message)
    found: _Resources = {}
    count = 0
    async for rule in in_turns(stored.walk(wanted.principal)):
        if rule is None or not wanted.matches(rule):
            continue
        count += 1
        if count > MAX_RULES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"More than {MAX_RULES} access rules: name a resource or a principal.",
            )
        resource = (int(rule.resource_type), rule.name, int(rule.pattern_type))
        found.setdefault(resource, []).append(rule)
    return found


def _description(rule: AclBinding) -> _Resource.AclDescription:
    return _Resource.AclDescription(
        principal=rule.principal,
        host=rule.host,
        operation=int(rule.operation),
        permission_type=int(rule.permission),
    )
