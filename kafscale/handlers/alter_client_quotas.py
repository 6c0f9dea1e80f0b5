"""AlterClientQuotas (49), versions 0 and 1: sets and removes quotas of users, client ids and addresses (KIP-546).

v1: flexible. Each entity is changed by itself, all its quotas together. Every broker serves it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafscale.formats.quota_record import QuotaEntity
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.security.audit import changed
from kafscale.security.quota_rules import entity_of
from kafscale.serving.config_resources import ALTER_TIMEOUT_MS
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MAX_CHANGES: Final = 10_000
"""Quotas in one request, as in Kafka (`MAX_RECORDS_PER_USER_OP`)."""

_Asked = AlterClientQuotasRequest.EntryData
_Result = AlterClientQuotasResponse.EntryData
_Names = tuple[tuple[str, str | None], ...]


async def handle(
    broker: "Broker", request: "RequestContext", message: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change each entity's quotas, or with validate-only check whether they could be changed."""
    asked: dict[_Names, _Asked] = {}
    again: set[_Names] = set()
    change_count = 0
    async for entry in in_turns(message.entries):
        names = tuple((part.entity_type, part.entity_name) for part in entry.entity)
        change_count += max(1, len(entry.ops))
        identity = tuple(sorted(names, key=lambda part: part[0]))
        if asked.setdefault(identity, entry) is not entry:
            again.add(identity)
    is_allowed = request.access.allows(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    altered: list[str] = []

    async def alter(identity: _Names) -> _Result:
        entry = asked[identity]
        try:
            if not is_allowed:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
            if change_count > MAX_CHANGES:
                raise _invalid(f"More than {MAX_CHANGES} quotas in one request.")
            entity, changes = _entity(identity), _changes(entry.ops)
            await broker.quota_updates.alter(
                entity, changes, timeout_ms=ALTER_TIMEOUT_MS, validate_only=bool(message.validate_only)
            )
            altered.append(_text(entity, changes))
            if identity in again:  # named twice: the first is carried out, and this is Kafka's answer
                raise _invalid("Ignoring duplicate entity")
        except KafkaError as refusal:
            return _result(entry, refusal.code, refusal.message or None)
        return _result(entry, ErrorCode.NONE, None)

    results = await for_each(asked, alter)
    if not message.validate_only:
        changed(request.access.principal, request.client_host, "client quotas altered", altered)
    return AlterClientQuotasResponse(entries=results)


def _text(entity: QuotaEntity, changes: Mapping[str, float | None]) -> str:
    """The change for an audit line."""
    names = " ".join(f"{kind}={quoted(name) or '<default>'}" for kind, name in entity.parts())
    values = ", ".join(
        f"{quoted(key)} removed" if value is None else f"{quoted(key)}={value:g}"
        for key, value in changes.items()
    )
    return f"{names} ({values})"


def _entity(names: _Names) -> QuotaEntity:
    by_type = dict(names)
    if len(by_type) < len(names):
        raise _invalid("Invalid client quota entity, duplicate entity entry")
    return entity_of(by_type)


def _changes(ops: Sequence[_Asked.OpData]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key in changes:
            raise _invalid(f"Duplicate quota key {quoted(op.key)} not updating quota for this entity")
        changes[op.key] = None if op.remove else op.value
    return changes


def _result(entry: _Asked, code: ErrorCode, message: str | None) -> _Result:
    return _Result(
        error_code=code,
        error_message=message,
        entity=[
            _Result.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
