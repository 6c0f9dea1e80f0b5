"""The question if a producer's transaction is open, and has a group in it (KIP-890)."""

from typing import Protocol


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
