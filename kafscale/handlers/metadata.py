"""Metadata (3), versions 0 to 12: brokers, topics, and the leaders of their partitions.

v0: an empty list of topics means all; from v1 a null list does, and an empty one none. v1: controller, racks,
internal topics. v2: cluster id. v4: the client says whether topics may be created. v5: offline replicas. v6: an
error of its own where the client's listener does not lead to the leader. v7: leader epochs (KIP-320). v8:
authorized operations (KIP-430). v9: flexible. v10: topic ids in answers (KIP-516). v11: no authorized operations
of the cluster (KIP-700). v12: topics may be asked for by id.

A partition's replicas are its leader and, where brokers have racks, the brokers that consumers of other racks
are sent to (KIP-392): the object store replicates.
"""

import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kafscale.cluster.new_topic import INTERNAL_TOPICS, NewTopic
from kafscale.formats.object_keys import topic_name_problem
from kafscale.metadata.model import TopicRecord
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import MetadataRequest
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.metadata import (
    NO_TOPIC_ID,
    MetadataBroker,
    MetadataTopic,
    encode_metadata_response,
    encode_topic,
    with_authorized_operations,
)
from kafscale.security.audit import changed
from kafscale.serving.authorization import denied
from kafscale.serving.authorized_operations import NOT_ASKED_FOR, cluster_operations, topic_operations
from kafscale.serving.encoded_topics import Asked
from kafscale.serving.mutations import NEVER_STRICT, counted_mutations
from kafscale.serving.placement import reachable
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import PARTS_PER_TURN, in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

AUTO_CREATE_TIMEOUT_MS: Final = 10_000
"""A first request for a topic waits so long for its creation; then its client must retry."""

MAX_CREATED_PER_REQUEST: Final = 32
"""Topics that one request creates; the others get LEADER_NOT_AVAILABLE, and their client retries."""

MAX_CREATED_AT_ONCE: Final = 128
"""Topics that are being created; while there are more, a request creates none."""

_FIRST_VERSION_WITH_IDS_ASKED: Final = 12


class _Wanted(NamedTuple):
    """The topics that a request names, each once. `is_legal`: their form is legal in its version."""

    all: bool
    is_legal: bool = True
    ids: Sequence[uuid.UUID] = ()
    names: Sequence[str] = ()

    @property
    def named(self) -> Sequence[str | uuid.UUID]:
        """The ids or, without ids, the names: as in Kafka, names are ignored where ids are given."""
        return self.ids or self.names

    @property
    def is_long(self) -> bool:
        """True if the answer may be one that is encoded in turns."""
        return self.all or len(self.named) > PARTS_PER_TURN

    def without(self, hidden: Container[str]) -> "_Wanted":
        """The same without names that the client must not see."""
        if self.all or self.ids:
            return self
        return self._replace(names=[name for name in self.names if name not in hidden])


def _wanted(version: int, message: MetadataRequest) -> _Wanted:
    if message.topics is None or (version == 0 and not message.topics):
        return _Wanted(all=True)
    pairs = [(asked.name, asked.topic_id) for asked in message.topics]
    ids = dict.fromkeys(topic_id for _, topic_id in pairs if topic_id is not None)
    names = dict.fromkeys(name for name, _ in pairs if name is not None)
    is_legal = version >= _FIRST_VERSION_WITH_IDS_ASKED or not (ids or any(name is None for name, _ in pairs))
    return _Wanted(all=False, is_legal=is_legal, ids=tuple(ids), names=tuple(names))


async def handle(broker: "Broker", request: "RequestContext", message: MetadataRequest) -> bytes:
    """The whole response frame."""
    version, view = request.api_version, broker.view
    wanted = _wanted(version, message)
    asked = Asked(version, request.listener, bool(message.include_topic_authorized_operations))
    topics: Sequence[bytes]
    if wanted.is_legal:
        hidden = await _hidden(broker, request, wanted)
        refused = [
            encode_topic(_failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name), version)
            async for name in in_turns(hidden if not wanted.all else ())
        ]
        wanted = wanted.without(hidden)
        creates = bool(message.allow_auto_topic_creation) and broker.settings.auto_create_topics
        codes = await _create_missing(broker, request, wanted) if creates else None
        unknown = await _encode_unknown(broker, version, wanted, codes)
        if wanted.all:
            await broker.read_replicas.prepare()
        if wanted.is_long:
            await broker.encoded_topics.prepare(_known(broker, wanted), asked)
        # No await from here on: the topics are those of one state of the view.
        topics = [*_topics(broker, request, asked, wanted, unknown), *refused]
    else:
        topics = [
            encode_topic(_failed(ErrorCode.INVALID_REQUEST, each.name or ""), version)
            async for each in in_turns(message.topics or ())
        ]
    return encode_metadata_response(
        request.correlation_id,
        version,
        [
            MetadataBroker(listed.broker_id, *endpoint, listed.rack)
            for listed, endpoint in reachable(broker.metadata_brokers.brokers(), request.listener)
        ],
        view.cluster_id,
        broker.metadata_brokers.controller_id(),
        topics,
        cluster_authorized_operations=cluster_operations(request.access)
        if message.include_cluster_authorized_operations
        else NOT_ASKED_FOR,
    )


async def _hidden(broker: "Broker", request: "RequestContext", wanted: _Wanted) -> frozenset[str]:
    """The names, of all topics or of those asked for by name or id, that the client must not see."""
    if not request.access.is_restricted:
        return frozenset()
    if not wanted.all and not wanted.ids:
        return await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, wanted.names)
    known = [record.name for record in _known(broker, wanted)]
    return await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, known, quiet=wanted.all)


async def _create_missing(
    broker: "Broker", request: "RequestContext", wanted: _Wanted
) -> Mapping[str, ErrorCode]:
    """Create some of the missing topics; returns the error codes of those that are still not in the view."""
    if wanted.ids:
        return {}
    refused = await _not_creatable(broker, request, wanted.names)
    room = min(MAX_CREATED_PER_REQUEST, MAX_CREATED_AT_ONCE - broker.topics.creating_count)
    legal = (
        name
        for name in wanted.names
        if broker.view.topic(name) is None and name not in refused and not topic_name_problem(name)
    )
    missing = list(islice(legal, max(0, room)))
    codes = await for_each(missing, lambda name: _create(broker, request, name))
    created = [name for name in missing if broker.view.topic(name) is not None]
    changed(request.access.principal, request.client_host, "topics created", created)
    return {
        **dict(zip(missing, codes, strict=True)),
        **dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }


async def _not_creatable(broker: "Broker", request: "RequestContext", names: Iterable[str]) -> frozenset[str]:
    """Those of the names without a topic that the client must not create one of."""
    access = request.access
    if not access.is_restricted or access.allows(
        Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    ):
        return frozenset()
    missing = [name for name in names if broker.view.topic(name) is None]
    return await denied(request, Operation.CREATE, ResourceType.TOPIC, missing)


async def _encode_unknown(
    broker: "Broker", version: int, wanted: _Wanted, codes: Mapping[str, ErrorCode] | None
) -> Mapping[str | uuid.UUID, bytes]:
    """The answer for each name or id without a topic. `codes`: of those created; None if none are."""
    unknown: dict[str | uuid.UUID, bytes] = {}
    async for named in in_turns(wanted.named):
        if _record(broker, named) is None:
            unknown[named] = encode_topic(_unknown(named, codes), version)
    return unknown


def _record(broker: "Broker", named: str | uuid.UUID) -> TopicRecord | None:
    return broker.view.topic(named) if isinstance(named, str) else broker.view.topic_by_id(named)


def _known(broker: "Broker", wanted: _Wanted) -> Iterable[TopicRecord]:
    if wanted.all:
        return tuple(broker.view.topics())
    records = (_record(broker, named) for named in wanted.named)
    return [record for record in records if record is not None]


def _topics(
    broker: "Broker",
    request: "RequestContext",
    asked: Asked,
    wanted: _Wanted,
    unknown: Mapping[str | uuid.UUID, bytes],
) -> Sequence[bytes]:
    access = request.access

    def is_visible(record: TopicRecord) -> bool:
        # Again: a topic may have come since the names were looked at.
        return not access.is_restricted or access.allows(
            Operation.DESCRIBE, ResourceType.TOPIC, record.name, quiet=True
        )

    def encode(records: Iterable[TopicRecord]) -> list[bytes]:
        if not (access.is_restricted and asked.with_operations):
            return broker.encoded_topics.encode(records, asked)
        listed = list(records)
        return [
            with_authorized_operations(data, asked.version, topic_operations(access, record.name))
            for record, data in zip(listed, broker.encoded_topics.encode(listed, asked), strict=True)
        ]

    if wanted.all:
        return encode(filter(is_visible, broker.view.topics()))
    records = [(named, _record(broker, named)) for named in wanted.named]
    known = iter(encode(record for _, record in records if record is not None and is_visible(record)))
    return [
        # A topic that was deleted a moment ago is unknown now, too.
        (unknown.get(named) or encode_topic(_unknown(named, None), asked.version))
        if record is None
        else next(known)
        if is_visible(record)
        else encode_topic(_hidden_topic(named), asked.version)
        for named, record in records
    ]


def _unknown(named: str | uuid.UUID, codes: Mapping[str, ErrorCode] | None) -> MetadataTopic:
    if isinstance(named, str) and codes and codes.get(named) is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, named)
    if isinstance(named, uuid.UUID):
        return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, named, False, ())
    if topic_name_problem(named) is not None:
        return _failed(ErrorCode.INVALID_TOPIC_EXCEPTION, named)
    if codes is None:
        return _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, named)
    # A topic that is to be created, but not by this request.
    return _failed(codes.get(named, ErrorCode.LEADER_NOT_AVAILABLE), named)


def _hidden_topic(named: str | uuid.UUID) -> MetadataTopic:
    """As in Kafka an id may be known to be one, its name not."""
    if isinstance(named, str):
        return _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, named)
    return MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, named, False, ())


def _failed(code: ErrorCode, name: str) -> MetadataTopic:
    return MetadataTopic(code, name, NO_TOPIC_ID, name in INTERNAL_TOPICS, ())


async def _create(broker: "Broker", request: "RequestContext", name: str) -> ErrorCode:
    """The error code of the topic if it is not in this broker's view afterwards."""
    try:
        with counted_mutations(request, broker.settings.auto_create_partitions, NEVER_STRICT):
            await broker.topics.create(NewTopic(name=name), timeout_ms=AUTO_CREATE_TIMEOUT_MS)
    except KafkaError as error:
        match error.code:
            case ErrorCode.TOPIC_ALREADY_EXISTS:  # in the view soon, or being deleted
                deleting = broker.view.topic(name, include_deleting=True) is not None
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if deleting else ErrorCode.LEADER_NOT_AVAILABLE
            case ErrorCode.REQUEST_TIMED_OUT:
                return ErrorCode.LEADER_NOT_AVAILABLE
            case code:
                return code
    return ErrorCode.LEADER_NOT_AVAILABLE
