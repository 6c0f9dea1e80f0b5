"""The question if a producer's transaction is open, and has a group in it (KIP-890)."""

from typing import Protocol

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted


class Participation(Protocol):
    """Asks the transaction's record, whichever broker coordinates the transactional id."""

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        group_id: str | None = None,
        adds: bool,
        knows_abortable: bool = False,
    ) -> None:
        """Return if the producer's transaction is open and has the group; with `adds` the group is added to it.

        Raises `KafkaError` with the codes that Kafka answers TxnOffsetCommit with; `knows_abortable`: the client
        knows TRANSACTION_ABORTABLE.
        """


class NoTransactions:
    """A broker without transactions knows no transactional id."""

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        group_id: str | None = None,
        adds: bool,
        knows_abortable: bool = False,
    ) -> None:
        """Raises `KafkaError` INVALID_PRODUCER_ID_MAPPING."""
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"there is no transactional id '{quoted(transactional_id)}'",
        )
