"""Where the answers of each API carry errors: once for the whole request, or for each thing that it names.

As in Kafka's protocol: https://kafka.apache.org/protocol. Field names are those of `api_messages`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFields:
    """`asked`, `index`: of the request; the empty text for an array of plain numbers. The others: of the answer."""

    asked: str = "partitions"
    index: str = "partition_index"
    answered: str = "partitions"
    answered_index: str = "partition_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """An array of the answer with an error for each item of an array of the request.

    `names`: fields that tell which item an answer is of, in the request and in the answer; the empty text for an
    array of plain texts; none where only the order tells. `values`: fields that are not zero beside an error.
    """

    asked: str
    answered: str
    names: tuple[tuple[str, str], ...] = (("name", "name"),)
    partitions: PartitionFields | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    are_topics: bool = False


FETCH_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

WHOLE_ANSWER: Final[Mapping[ApiKey, Mapping[str, object]]] = {
    ApiKey.JOIN_GROUP: {"generation_id": -1},
    ApiKey.HEARTBEAT: {},
    ApiKey.LEAVE_GROUP: {},
    ApiKey.SYNC_GROUP: {},
    ApiKey.LIST_GROUPS: {},
    ApiKey.SASL_HANDSHAKE: {},
    ApiKey.SASL_AUTHENTICATE: {},
    ApiKey.API_VERSIONS: {},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.DESCRIBE_ACLS: {},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {},
    ApiKey.OFFSET_DELETE: {},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {},
    ApiKey.UPDATE_FEATURES: {},
    ApiKey.DESCRIBE_CLUSTER: {"controller_id": -1},
    ApiKey.LIST_CONFIG_RESOURCES: {},
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    ApiKey.ELECT_LEADERS: {},
    ApiKey.OFFSET_FETCH: {},
}
"""APIs with one error for the request, in the versions that have the field, and values of the answer beside it."""

_TOPIC_PARTITIONS: Final = PartitionFields()

_PRODUCE: Final = Carrier(
    asked="topic_data",
    answered="responses",
    names=(("name", "name"), ("topic_id", "topic_id")),
    partitions=PartitionFields(
        asked="partition_data", index="index", answered="partition_responses", answered_index="index"
    ),
    values={"base_offset": -1},
    are_topics=True,
)
_FETCH: Final = Carrier(
    asked="topics",
    answered="responses",
    names=(("topic", "topic"), ("topic_id", "topic_id")),
    partitions=PartitionFields(index="partition"),
    values={"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "records": b""},
    are_topics=True,
)


def _topics(answered: str, **values: object) -> Carrier:
    return Carrier(asked="topics", answered=answered, values=values, are_topics=True)


def _partitions(**values: object) -> Carrier:
    return Carrier(
        asked="topics", answered="topics", partitions=_TOPIC_PARTITIONS, values=values, are_topics=True
    )


def _texts(asked: str, answered: str, name: str, **values: object) -> Carrier:
    return Carrier(asked=asked, answered=answered, names=(("", name),), values=values)


def _resources(answered: str) -> Carrier:
    return Carrier(
        asked="resources",
        answered=answered,
        names=(("resource_type", "resource_type"), ("resource_name", "resource_name")),
    )


_BY_API: Final[Mapping[ApiKey, tuple[tuple[int, Carrier], ...]]] = {
    ApiKey.PRODUCE: ((0, _PRODUCE),),
    ApiKey.FETCH: ((0, _FETCH),),
    ApiKey.LIST_OFFSETS: ((0, _partitions(timestamp=-1, offset=-1)),),
    ApiKey.METADATA: (
        (
            0,
            Carrier(
                asked="topics",
                answered="topics",
                names=(("name", "name"), ("topic_id", "topic_id")),
                are_topics=True,
            ),
        ),
    ),
    ApiKey.OFFSET_COMMIT: ((0, _partitions()),),
    ApiKey.OFFSET_FETCH: (
        (
            0,
            Carrier(
                asked="topics",
                answered="topics",
                partitions=PartitionFields(asked="partition_indexes", index=""),
                values={"committed_offset": -1, "metadata": ""},
            ),
        ),
        (8, Carrier(asked="groups", answered="groups", names=(("group_id", "group_id"),))),
    ),
    ApiKey.FIND_COORDINATOR: ((4, _texts("coordinator_keys", "coordinators", "key", node_id=-1, port=-1)),),
    ApiKey.DESCRIBE_GROUPS: ((0, _texts("groups", "groups", "group_id")),),
    ApiKey.DELETE_GROUPS: ((0, _texts("groups_names", "results", "group_id")),),
    ApiKey.CREATE_TOPICS: ((0, _topics("topics", num_partitions=-1, replication_factor=-1)),),
    ApiKey.DELETE_TOPICS: (
        (
            0,
            Carrier(asked="topic_names", answered="responses", names=(("", "name"),), are_topics=True),
        ),
        (
            6,
            Carrier(
                asked="topics",
                answered="responses",
                names=(("name", "name"), ("topic_id", "topic_id")),
                are_topics=True,
            ),
        ),
    ),
    ApiKey.DELETE_RECORDS: ((0, _partitions(low_watermark=-1)),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        (
            0,
            Carrier(
                asked="topics",
                answered="topics",
                names=(("topic", "topic"),),
                partitions=PartitionFields(index="partition", answered_index="partition"),
                values={"leader_epoch": -1, "end_offset": -1},
                are_topics=True,
            ),
        ),
    ),
    ApiKey.CREATE_ACLS: ((0, Carrier(asked="creations", answered="results", names=())),),
    ApiKey.DELETE_ACLS: ((0, Carrier(asked="filters", answered="filter_results", names=())),),
    ApiKey.DESCRIBE_CONFIGS: ((0, _resources("results")),),
    ApiKey.ALTER_CONFIGS: ((0, _resources("responses")),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ((0, _resources("responses")),),
    ApiKey.CREATE_PARTITIONS: ((0, _topics("results")),),
    ApiKey.ELECT_LEADERS: (
        (
            0,
            Carrier(
                asked="topic_partitions",
                answered="replica_election_results",
                names=(("topic", "topic"),),
                partitions=PartitionFields(
                    asked="partitions", index="", answered="partition_result", answered_index="partition_id"
                ),
            ),
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        (0, Carrier(asked="entries", answered="entries", names=(("entity", "entity"),))),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ((0, _topics("topics")),),
}


APIS: Final = frozenset(WHOLE_ANSWER) | frozenset(_BY_API)
"""Those that an error can be ordered for."""


def carrier_of(api: ApiKey, version: int) -> Carrier | None:
    """The array with errors of the things that a request names; None where it has one for the request."""
    found = None
    for since, carrier in _BY_API.get(api, ()):
        if version >= since:
            found = carrier
    return found


def names_topics(api: ApiKey) -> bool:
    """True if the answer has an error for each topic."""
    return any(carrier.are_topics for _, carrier in _BY_API.get(api, ()))


def names_partitions(api: ApiKey) -> bool:
    """True if the answer has an error for each partition of a topic."""
    return any(carrier.are_topics and carrier.partitions for _, carrier in _BY_API.get(api, ()))
