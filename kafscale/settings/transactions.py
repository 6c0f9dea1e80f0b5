"""The settings of transactions."""

from dataclasses import dataclass

from kafscale.settings.kinds import integer
from kafscale.settings.rows import INT32_MAX, INT64_MAX, setting


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Limits and times of transactions; a part of `Settings`."""

    transaction_max_timeout_ms: int = setting(
        "KAFSCALE_TRANSACTION_MAX_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "900000",
        "The longest transaction timeout that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        "KAFSCALE_TRANSACTIONAL_ID_EXPIRATION_MS",
        integer(1, INT32_MAX),
        "604800000",
        "How long a transactional id is kept after its last transaction.",
    )
    transaction_abort_timed_out_interval_ms: int = setting(
        "KAFSCALE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS",
        integer(1, INT64_MAX),
        "10000",
        "How often the broker looks for transactions that have timed out.",
    )
    transactional_id_expiry_interval_ms: int = setting(
        "KAFSCALE_TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS",
        integer(1, INT64_MAX),
        "3600000",
        "How often the broker looks for transactional ids that have expired.",
    )
    transactional_ids_max: int = setting(
        "KAFSCALE_TRANSACTIONAL_IDS_MAX",
        integer(64, INT32_MAX),
        "128000",
        "About how many transactional ids the cluster may have: each of the 64 shards has a part of them. A new one "
        "past it is refused.",
    )
