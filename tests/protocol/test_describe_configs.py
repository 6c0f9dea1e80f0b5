"""The hand-written DescribeConfigs response against kio and kafka-python, over every version."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeConfigsResponse
from kio.index import load_response_schema

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.describe_configs import (
    MAX_VERSION,
    MIN_VERSION,
    DescribedConfig,
    DescribedSynonym,
    encode_config,
    encode_describe_configs_response,
    encode_result,
)
from kafscale.protocol.error_codes import ErrorCode
from tests.protocol import oracle

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(-128, 127)
TEXT = st.text(st.characters(codec="utf-8"), max_size=150)
SYNONYMS = st.lists(st.builds(DescribedSynonym, TEXT, st.none() | TEXT, INT8), max_size=3)
CONFIGS = st.lists(
    st.builds(DescribedConfig, TEXT, st.none() | TEXT, st.booleans(), INT8, SYNONYMS, INT8, st.none() | TEXT),
    max_size=4,
)
RESULTS = st.lists(
    st.tuples(st.sampled_from(ErrorCode).map(int), st.none() | TEXT, INT8, TEXT, CONFIGS), max_size=4
)


def encoded(correlation_id: int, version: int, results: list[Any]) -> bytes:
    return encode_describe_configs_response(
        correlation_id,
        version,
        [
            encode_result(
                version, code, message, kind, name, [encode_config(config, version) for config in configs]
            )
            for code, message, kind, name, configs in results
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(correlation_id=INT32, results=RESULTS)
def test_response_decodes_to_the_same_with_both_oracles(
    version: int, correlation_id: int, results: list[Any]
) -> None:
    frame = encoded(correlation_id, version, results)

    def config_fields(config: DescribedConfig) -> list[Any]:
        typed = [config.config_type, config.documentation] if version >= 3 else []
        synonyms = [list(synonym) for synonym in config.synonyms]
        return [config.name, config.value, config.read_only, config.source, False, synonyms, *typed]

    expected = [[*result[:4], [config_fields(config) for config in result[4]]] for result in results]
    response_type: Any = load_response_schema(ApiKey.DESCRIBE_CONFIGS, version)
    assert oracle.plain(oracle.decode_frame(response_type, frame, correlation_id)) == [0, expected]
    decoded = DescribeConfigsResponse.decode(frame, version=version, header=True, framed=True)
    assert [one.resource_name for one in decoded.results] == [result[3] for result in results]
    assert decoded.encode(header=True, framed=True) == frame
