"""The parts that the three ACL APIs share: codes and filters as requests have them, and refusals."""

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafscale.formats.acl_record import AclBinding
from kafscale.protocol.acl_codes import Operation, PatternType, Permission, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.acl_filter import AclFilter
from kafscale.serving.authorization import check_access

if TYPE_CHECKING:
    from kafscale.security.acl_store import AclStore
    from kafscale.serving.context import Broker, RequestContext

_Code = TypeVar("_Code", bound=IntEnum)

_LONGEST_TEXT_LOGGED: Final = 200


class FilterFields(Protocol):
    """A filter of a request."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def code_of(codes: type[_Code], number: int) -> _Code:
    """The code with this number; UNKNOWN for a number that is none, as in Kafka."""
    return codes(number) if number in codes._value2member_map_ else codes(0)


def filter_of(fields: FilterFields) -> AclFilter:
    """The filter. Raises `KafkaError` INVALID_REQUEST for one with unknown codes."""
    found = AclFilter(
        code_of(ResourceType, fields.resource_type_filter),
        code_of(PatternType, fields.pattern_type_filter),
        fields.resource_name_filter,
        fields.principal_filter,
        fields.host_filter,
        code_of(Operation, fields.operation),
        code_of(Permission, fields.permission_type),
    )
    if found.is_unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter contains UNKNOWN elements.")
    return found


def rules_for(broker: "Broker", request: "RequestContext", operation: Operation) -> "AclStore":
    """The access rules. Raises `KafkaError` without an authorizer, or if the client must not do this with them."""
    check_access(request, operation)
    if broker.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return broker.acls


def text_of(rule: AclBinding) -> str:
    """The rule for an audit line."""
    pattern = "" if rule.pattern_type is PatternType.LITERAL else f"{rule.pattern_type.name.lower()} "
    text = (
        f"{rule.permission.name.lower()} {rule.principal} {rule.operation.name.lower()} on {pattern}"
        f"{rule.resource_type.name.lower()} {rule.name} from {rule.host}"
    )
    return text[:_LONGEST_TEXT_LOGGED]
