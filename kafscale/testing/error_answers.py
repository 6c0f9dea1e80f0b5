"""Answers that say of a request, or of a part of what it names, that it failed. Pure."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.testing.error_carriers import (
    FETCH_SESSION_ERRORS,
    WHOLE_ANSWER,
    Carrier,
    PartitionFields,
    carrier_of,
)

_MESSAGE: Final = "ordered by a test"

TopicName = Callable[[uuid.UUID], str | None]
"""The name of a topic by its id, None for an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """The part of a request that fails: all of it, or one topic, or one partition of it."""

    error: ErrorCode
    topic: str | None = None
    partition: int | None = None


def has_whole_error(api: ApiKey, version: int, error: ErrorCode) -> bool:
    """True if the answer carries the error once, for the request as a whole."""
    if api is ApiKey.FETCH:
        return error in FETCH_SESSION_ERRORS and _has_field(api, version, "error_code")
    return api in WHOLE_ANSWER and _has_field(api, version, "error_code")


def whole_error(api: ApiKey, version: int, error: ErrorCode) -> Any:
    """The answer, for an API and version that has one error for the request."""
    answer = RESPONSE_CLASSES[api](error_code=int(error), **WHOLE_ANSWER.get(api, {}))
    _explain(answer)
    return answer


def take_failed(
    api: ApiKey, version: int, message: Any, part: FailedPart, topic_name: TopicName
) -> list[Any] | None:
    """The answer's items for what fails, which is taken out of the request; None if there is nothing of the kind.

    `message`: the decoded request. What is left in it is to be carried out.
    """
    carrier = carrier_of(api, version)
    if carrier is None:
        return None
    failed, left = [], []
    for asked in getattr(message, carrier.asked) or ():
        if part.topic is not None and part.topic != _name(carrier, asked, topic_name):
            left.append(asked)
            continue
        item = _item(api, carrier, asked, part)
        if item is None:
            left.append(asked)
            continue
        failed.append(item)
        if carrier.partitions is not None and getattr(asked, carrier.partitions.asked):
            left.append(asked)
    if not failed:
        return None
    setattr(message, carrier.asked, left)
    return failed


def is_left(api: ApiKey, version: int, message: Any) -> bool:
    """True if something is left in the request that can be carried out."""
    carrier = carrier_of(api, version)
    return carrier is not None and bool(getattr(message, carrier.asked))


def answer_of(api: ApiKey, version: int, failed: list[Any]) -> Any:
    """An answer with nothing but failed items."""
    carrier = carrier_of(api, version)
    assert carrier is not None
    return RESPONSE_CLASSES[api](**{carrier.answered: failed})


def add_failed(api: ApiKey, version: int, answer: Any, failed: list[Any]) -> None:
    """Put the failed items into the answer to the rest of the request."""
    carrier = carrier_of(api, version)
    assert carrier is not None
    items = list(getattr(answer, carrier.answered) or ())
    for one in failed:
        beside = next((item for item in items if _same(carrier, item, one)), None)
        if beside is None or carrier.partitions is None:
            items.append(one)
        else:
            field = carrier.partitions.answered
            setattr(beside, field, [*getattr(beside, field), *getattr(one, field)])
    setattr(answer, carrier.answered, items)


def mark_topics(answer: Any, part: FailedPart) -> bool:
    """Give topics of a Metadata answer the error, without partitions; False if it has none of the kind."""
    found = False
    for topic in answer.topics:
        if part.topic in (None, topic.name):
            topic.error_code, topic.partitions = int(part.error), []
            found = True
    return found


def _item(api: ApiKey, carrier: Carrier, asked: Any, part: FailedPart) -> Any:
    """The answer's item for one of the request, None if nothing of it fails. Failed partitions are taken out."""
    new_item = RESPONSE_CLASSES[api].fields[carrier.answered]
    item = new_item(
        **{
            answered: asked if name == "" else getattr(asked, name)
            for name, answered in carrier.names
            if answered in new_item.fields
        }
    )
    if carrier.partitions is None:
        return _fail(item, part.error, carrier)
    failed = list(_failed_partitions(new_item, carrier, carrier.partitions, asked, part))
    setattr(item, carrier.partitions.answered, failed)
    return item if failed else None


def _failed_partitions(
    new_item: Any, carrier: Carrier, fields: PartitionFields, asked: Any, part: FailedPart
) -> Iterator[Any]:
    left = []
    for one in getattr(asked, fields.asked) or ():
        index = one if fields.index == "" else getattr(one, fields.index)
        if part.partition in (None, index):
            answer = new_item.fields[fields.answered](**{fields.answered_index: index})
            yield _fail(answer, part.error, carrier)
        else:
            left.append(one)
    setattr(asked, fields.asked, left)


def _fail(item: Any, error: ErrorCode, carrier: Carrier) -> Any:
    item.error_code = int(error)
    for name, value in carrier.values.items():
        setattr(item, name, value)
    _explain(item)
    return item


def _explain(item: Any) -> None:
    if hasattr(item, "error_message"):
        item.error_message = _MESSAGE


def _name(carrier: Carrier, asked: Any, topic_name: TopicName) -> str | None:
    for field, _ in carrier.names:
        value = asked if field == "" else getattr(asked, field)
        if isinstance(value, uuid.UUID):
            return topic_name(value)
        if value:
            return str(value)
    return None


def _same(carrier: Carrier, one: Any, other: Any) -> bool:
    return all(getattr(one, name) == getattr(other, name) for _, name in carrier.names)


def _has_field(api: ApiKey, version: int, name: str) -> bool:
    field = RESPONSE_CLASSES[api].fields.get(name)
    return field is not None and bool(field.for_version_q(version))
