"""Answers with an error: every API in every version carries it where Kafka's does."""

import uuid
from typing import Any

import pytest

from kafscale.handlers.route import Route
from kafscale.handlers.routes import ROUTES
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.message_classes import REQUEST_CLASSES, RESPONSE_CLASSES
from kafscale.protocol.messages import encode_response
from kafscale.testing.error_answers import (
    FailedPart,
    add_failed,
    answer_of,
    has_whole_error,
    is_left,
    take_failed,
    whole_error,
)
from kafscale.testing.error_carriers import APIS
from tests.support import wire

ERROR = ErrorCode.COORDINATOR_NOT_AVAILABLE
TOPIC_ID = uuid.UUID(int=7)
CARRIED = [
    pytest.param(route, version, id=f"{route.api.api_name}-{version}")
    for route in ROUTES
    if route.api in APIS
    for version in range(route.min_version, route.max_version + 1)
]
UNTOUCHED = wire.batch([b"x"])


def filled(schema: Any, version: int) -> Any:
    """A message in which every array has one item."""
    values: dict[str, object] = {}
    for name, field in schema.fields.items():
        kind = field._json["type"]
        if not field.for_version_q(version):
            continue
        if field.is_struct_array():
            values[name] = [filled(field, version)]
        elif kind.startswith("[]"):
            values[name] = ["a-name" if kind == "[]string" else 0]
        elif kind == "string":
            values[name] = "a-name"
        elif kind in ("bytes", "records"):
            values[name] = b"x"
        elif kind == "uuid":
            values[name] = TOPIC_ID
    return schema(**values)


def error_codes(answer: Any) -> list[int]:
    """Every error code of an answer that is not 0."""
    if isinstance(answer, dict):
        own = [value for name, value in answer.items() if name == "error_code" and value]
        return own + [code for value in answer.values() for code in error_codes(value)]
    if isinstance(answer, list):
        return [code for one in answer for code in error_codes(one)]
    return []


@pytest.mark.parametrize(("route", "version"), CARRIED)
def test_error_is_in_the_answer_of_every_api(route: Route, version: int) -> None:
    api = route.api
    if has_whole_error(api, version, ERROR):
        answer = whole_error(api, version, ERROR)
    else:
        request = filled(REQUEST_CLASSES[api], version)
        failed = take_failed(api, version, request, FailedPart(error=ERROR), lambda _: "topic")
        assert failed is not None
        assert not is_left(api, version, request)
        answer = answer_of(api, version, failed)
    version = 0 if api is ApiKey.API_VERSIONS else version
    frame = encode_response(answer, version, 5)
    read = RESPONSE_CLASSES[api].decode(frame[4:], version=version, header=True)
    assert read.header.correlation_id == 5
    assert error_codes(read.to_dict()) == [ERROR]


def produce_request() -> Any:
    request = wire.produce_request("a", {0: UNTOUCHED, 1: UNTOUCHED})
    request.topic_data += wire.produce_request("b", {0: UNTOUCHED}).topic_data
    return request


def left(request: Any) -> list[tuple[str, int]]:
    return [(topic.name, one.index) for topic in request.topic_data for one in topic.partition_data]


@pytest.mark.parametrize(
    ("topic", "partition", "failed", "kept"),
    [
        (None, None, [("a", 0), ("a", 1), ("b", 0)], []),
        ("a", None, [("a", 0), ("a", 1)], [("b", 0)]),
        ("a", 1, [("a", 1)], [("a", 0), ("b", 0)]),
        ("b", 0, [("b", 0)], [("a", 0), ("a", 1)]),
    ],
)
def test_failed_part_is_taken_out_of_the_request(
    topic: str | None, partition: int | None, failed: list[tuple[str, int]], kept: list[tuple[str, int]]
) -> None:
    request = produce_request()
    part = FailedPart(error=ERROR, topic=topic, partition=partition)
    items = take_failed(ApiKey.PRODUCE, 9, request, part, lambda _: None)
    assert items is not None
    assert [(item.name, one.index) for item in items for one in item.partition_responses] == failed
    assert left(request) == kept
    assert is_left(ApiKey.PRODUCE, 9, request) == bool(kept)


@pytest.mark.parametrize(("topic", "partition"), [("c", None), ("a", 2)])
def test_request_without_the_failed_part_is_left_alone(topic: str, partition: int | None) -> None:
    request = produce_request()
    part = FailedPart(error=ERROR, topic=topic, partition=partition)
    assert take_failed(ApiKey.PRODUCE, 9, request, part, lambda _: None) is None
    assert left(request) == [("a", 0), ("a", 1), ("b", 0)]


def test_topic_of_an_id_is_found_by_its_name() -> None:
    request = filled(REQUEST_CLASSES[ApiKey.FETCH], 13)
    request.topics[0].topic = ""
    names = {TOPIC_ID: "orders"}
    part = FailedPart(error=ERROR, topic="orders")
    items = take_failed(ApiKey.FETCH, 13, request, part, names.get)
    assert items is not None
    assert items[0].topic_id == TOPIC_ID


def test_failed_partitions_join_their_topic_in_the_answer() -> None:
    request, whole = produce_request(), produce_request()
    part = FailedPart(error=ERROR, topic="a", partition=1)
    failed = take_failed(ApiKey.PRODUCE, 9, request, part, lambda _: None)
    good = take_failed(ApiKey.PRODUCE, 9, request, FailedPart(error=ErrorCode.NONE), lambda _: None)
    assert failed is not None
    assert good is not None
    answer = answer_of(ApiKey.PRODUCE, 9, good)
    add_failed(ApiKey.PRODUCE, 9, answer, failed)
    codes = [
        (topic.name, one.index, one.error_code)
        for topic in answer.responses
        for one in topic.partition_responses
    ]
    assert codes == [("a", 0, 0), ("a", 1, ERROR), ("b", 0, 0)]
    assert len(left(whole)) == 3
