"""The checks and codes that the handlers of transactions share."""

from typing import TYPE_CHECKING, Final

from kafscale.formats.features import FINALIZE_TRANSACTIONS_COMMAND, NO_TRANSACTIONS, TRANSACTION_VERSION
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

STATE_NAMES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's names of the states, by number."""


def check_transactional(
    broker: "Broker",
    request: "RequestContext",
    transactional_id: str,
    operation: Operation = Operation.WRITE,
) -> None:
    """Raises `KafkaError` TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the client must not use the transactional id.

    Also if the cluster has no transactions: clients take that code for final.
    """
    check_access(request, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if broker.view.feature_level(TRANSACTION_VERSION) == NO_TRANSACTIONS:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"this cluster has no transactions yet: run `{FINALIZE_TRANSACTIONS_COMMAND}`",
        )


def fenced_code(code: ErrorCode, request: "RequestContext", first_version_with_fenced: int) -> ErrorCode:
    """The code for a client of this version: PRODUCER_FENCED is newer than the APIs (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and request.api_version < first_version_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
