"""Feature levels (KIP-584): what this program supports, what a cluster has finalized, and what that allows.

Stored format: docs/format/metadata.md. A level is finalized by UpdateFeatures (`feature_updates.py`), some when a
cluster begins; until then the feature's level before all levels holds. A finalized level is never taken back.
"""

from collections.abc import Mapping
from typing import Final

from kafscale.errors import CorruptDataError, StartupError, UnknownFormatVersionError
from kafscale.formats.topic_record import decode_fields, encode_fields
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, FeatureRange
from kafscale.settings.broker import Settings, variable_of

SEGMENT_FORMAT: Final = "kafscale.segment.format"
"""Which indexes are written, and with that how large a segment may be."""

TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature (KIP-1022): 0: no transactions, 1: TV1, 2: TV2 (KIP-890), too. Older releases know none of them.

From level 1 on journals and partition records have what those releases cannot read.
"""

GROUP_VERSION: Final = "group.version"
"""Kafka's feature (KIP-848): 0: classic groups only, 1: groups of the consumer protocol, too.

Older releases cannot read what such groups store.
"""

SHARE_VERSION: Final = "share.version"
"""Kafka's feature (KIP-932): 0: no share groups, 1: share groups. Older releases cannot read what they store."""

LEGACY_LEVEL: Final = 1
"""Of `SEGMENT_FORMAT` while it is not finalized: index version 1, segments up to 2^31-1 bytes."""

LARGE_SEGMENTS_LEVEL: Final = 2
"""Of `SEGMENT_FORMAT`: index version 2, segments of any size."""

MAX_LEGACY_SEGMENT_BYTES: Final = 2**31 - 1

NO_TRANSACTIONS: Final = 0
TRANSACTIONS_LEVEL: Final = 2

CLASSIC_GROUPS: Final = 0
CONSUMER_PROTOCOL_LEVEL: Final = 1

NO_SHARE_GROUPS: Final = 0
SHARE_GROUPS_LEVEL: Final = 1

SUPPORTED: Final[Mapping[str, FeatureRange]] = {
    SEGMENT_FORMAT: FeatureRange(LEGACY_LEVEL, LARGE_SEGMENTS_LEVEL),
    TRANSACTION_VERSION: FeatureRange(NO_TRANSACTIONS, TRANSACTIONS_LEVEL),
    GROUP_VERSION: FeatureRange(CLASSIC_GROUPS, CONSUMER_PROTOCOL_LEVEL),
    SHARE_VERSION: FeatureRange(NO_SHARE_GROUPS, SHARE_GROUPS_LEVEL),
}
"""The levels that this program supports, by feature; a broker registers with them."""

NEW_CLUSTER: Final[Mapping[str, int]] = {
    TRANSACTION_VERSION: TRANSACTIONS_LEVEL,
    GROUP_VERSION: CONSUMER_PROTOCOL_LEVEL,
    SHARE_VERSION: SHARE_GROUPS_LEVEL,
}
"""The levels that are finalized when a cluster begins."""

FINALIZE_COMMAND: Final = (
    "kafka-features.sh --bootstrap-server HOST:PORT upgrade "
    f"--feature {SEGMENT_FORMAT}={LARGE_SEGMENTS_LEVEL}"
)
"""The command that an operator runs once for larger segments."""

FINALIZE_TRANSACTIONS_COMMAND: Final = (
    "kafka-features.sh --bootstrap-server HOST:PORT upgrade "
    f"--feature {TRANSACTION_VERSION}={TRANSACTIONS_LEVEL}"
)
"""The command that an operator runs once for transactions in a cluster that an older release began."""

FINALIZE_GROUPS_COMMAND: Final = (
    "kafka-features.sh --bootstrap-server HOST:PORT upgrade "
    f"--feature {GROUP_VERSION}={CONSUMER_PROTOCOL_LEVEL}"
)
"""The command that an operator runs once for the consumer protocol in a cluster that an older release began."""

FINALIZE_SHARE_GROUPS_COMMAND: Final = (
    f"kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature {SHARE_VERSION}={SHARE_GROUPS_LEVEL}"
)
"""The command that an operator runs once for share groups in a cluster that an older release began."""

_BEFORE_FEATURES: Final[Mapping[str, FeatureRange]] = {
    SEGMENT_FORMAT: FeatureRange(LEGACY_LEVEL, LEGACY_LEVEL)
}
_NOT_SUPPORTED: Final = FeatureRange(0, 0)


def supported_by(broker: BrokerRecord, feature: str) -> FeatureRange:
    """The broker's levels of the feature, 0 to 0 for none. One that says nothing is older than features."""
    return (broker.features or _BEFORE_FEATURES).get(feature, _NOT_SUPPORTED)


def level_before(feature: str) -> int:
    """The level that holds while none is finalized."""
    return SUPPORTED.get(feature, _NOT_SUPPORTED).min_level


def encode_level(level: int) -> bytes:
    """The stored bytes of a finalized level."""
    return encode_fields({"level": level})


def decode_level(key: str, data: bytes) -> int:
    """The finalized level. Raises `CorruptDataError`, `UnknownFormatVersionError`.

    The latter also for a feature or a level that this program does not support: it would break what the
    others rely on.
    """
    level = decode_fields(key, data).get("level")
    if not isinstance(level, int) or isinstance(level, bool) or level < 1:
        raise CorruptDataError(key, f"'level' is {level!r}, not a number from 1")
    supported = SUPPORTED.get(keys.feature_name(key))
    if supported is None:
        raise UnknownFormatVersionError(key, level, "none, this release does not have the feature")
    if level not in supported:
        raise UnknownFormatVersionError(key, level, f"{supported.min_level} to {supported.max_level}")
    return level


def check_segment_settings(settings: Settings, level: int) -> None:
    """Refuse to start with segments that the finalized `level` of `SEGMENT_FORMAT` does not allow.

    Raises `StartupError`.
    """
    if level >= LARGE_SEGMENTS_LEVEL:
        return
    for field in ("segment_bytes", "merge_target_bytes"):
        value = getattr(settings, field)
        if value > MAX_LEGACY_SEGMENT_BYTES:
            raise StartupError(
                f"{variable_of(field)}={value} is not legal in this cluster yet: above {MAX_LEGACY_SEGMENT_BYTES} "
                f"it needs feature level {LARGE_SEGMENTS_LEVEL} of {SEGMENT_FORMAT}, and level {level} holds; run "
                f"`{FINALIZE_COMMAND}` against a running broker (this one with a smaller value, if there is no "
                "other), then start this one again"
            )
