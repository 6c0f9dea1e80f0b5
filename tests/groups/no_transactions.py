"""For tests of groups that have nothing to do with transactions."""

from kafscale.protocol.error_codes import ErrorCode, KafkaError


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
            f"there is no transactional id '{transactional_id}'",
        )
