"""Feature levels as values: what is stored, what brokers say of themselves, which settings need which level."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, StartupError, UnknownFormatVersionError
from kafscale.formats.features import (
    GROUP_VERSION,
    LARGE_SEGMENTS_LEVEL,
    LEGACY_LEVEL,
    NEW_CLUSTER,
    SEGMENT_FORMAT,
    SUPPORTED,
    TRANSACTION_VERSION,
    check_segment_settings,
    decode_level,
    encode_level,
    level_before,
    supported_by,
)
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, FeatureRange
from kafscale.settings.broker import load_settings

KEY = keys.feature(SEGMENT_FORMAT)
COMMAND = "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature kafscale.segment.format=2"


@pytest.mark.parametrize("level", [LEGACY_LEVEL, LARGE_SEGMENTS_LEVEL])
def test_a_level_has_the_bytes_of_the_format_page_and_comes_back(level: int) -> None:
    assert KEY == "features/kafscale.segment.format"
    assert encode_level(level) == b'{"version":1,"level":%d}' % level
    assert decode_level(KEY, encode_level(level)) == level


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (KEY, b"", CorruptDataError),
        (KEY, b'{"version":1}', CorruptDataError),
        (KEY, b'{"version":1,"level":0}', CorruptDataError),
        (KEY, b'{"version":1,"level":true}', CorruptDataError),
        (KEY, b'{"version":1,"level":"2"}', CorruptDataError),
        (KEY, b'{"version":2,"level":2}', UnknownFormatVersionError),
        (KEY, b'{"version":1,"level":3}', UnknownFormatVersionError),
        ("features/of.the.future", b'{"version":1,"level":1}', UnknownFormatVersionError),
    ],
)
def test_a_level_that_cannot_be_read_is_refused_by_name(
    key: str, value: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error, match=key) as refusal:
        decode_level(key, value)
    assert type(refusal.value) is error


def test_what_a_broker_supports() -> None:
    def broker(**features: FeatureRange) -> BrokerRecord:
        return BrokerRecord(broker_id=1, host="h", port=1, features=features)

    newest = BrokerRecord(broker_id=1, host="h", port=1, features=SUPPORTED)
    assert supported_by(newest, SEGMENT_FORMAT) == (1, 2)
    # Registered before there were features.
    assert supported_by(broker(), SEGMENT_FORMAT) == (1, 1)
    assert supported_by(broker(), "another") == (0, 0)
    assert supported_by(broker(another=FeatureRange(3, 4)), SEGMENT_FORMAT) == (0, 0)
    assert supported_by(broker(another=FeatureRange(3, 4)), "another") == (3, 4)


@pytest.mark.parametrize("feature", [TRANSACTION_VERSION, GROUP_VERSION])
def test_a_feature_begins_with_the_cluster_or_with_its_level(feature: str) -> None:
    assert level_before(feature) == 0
    assert level_before(SEGMENT_FORMAT) == 1
    assert level_before("another") == 0
    assert NEW_CLUSTER[feature] == SUPPORTED[feature].max_level
    older = BrokerRecord(broker_id=1, host="h", port=1, features={SEGMENT_FORMAT: FeatureRange(1, 2)})
    assert supported_by(older, feature) == (0, 0)


@given(st.integers(-1, 6), st.integers(0, 5), st.integers(0, 5))
def test_a_range_holds_both_its_ends(level: int, low: int, high: int) -> None:
    assert (level in FeatureRange(low, high)) == (low <= level <= high)


@pytest.mark.parametrize("variable", ["KAFSCALE_SEGMENT_BYTES", "KAFSCALE_MERGE_TARGET_BYTES"])
def test_settings_of_large_segments_wait_for_their_level(variable: str) -> None:
    def settings(size: int) -> dict[str, str]:
        return {variable: str(size), "KAFSCALE_BUFFER_BYTES": "64GiB"}

    check_segment_settings(load_settings(settings(2**31 - 1)), LEGACY_LEVEL)
    check_segment_settings(load_settings(settings(2**31)), LARGE_SEGMENTS_LEVEL)
    with pytest.raises(StartupError) as refusal:
        check_segment_settings(load_settings(settings(2**31)), LEGACY_LEVEL)
    message = str(refusal.value)
    assert f"{variable}=2147483648" in message
    assert COMMAND in message
    assert len(message.splitlines()) == 1
