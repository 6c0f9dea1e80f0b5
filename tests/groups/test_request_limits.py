"""Texts that some version of some group API could not carry, and too many protocols, are refused."""

import pytest

from kafscale.groups.events import Protocol
from kafscale.groups.request_limits import (
    MAX_PROTOCOLS,
    MAX_TEXT_BYTES,
    check_group_id,
    check_named,
    check_protocols,
    check_texts,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError


def test_a_member_id_made_of_the_longest_text_still_fits() -> None:
    longest = "ä" * ((MAX_TEXT_BYTES - 37) // 2)
    check_texts(longest, None, "", "range")
    with pytest.raises(KafkaError, match="32730 bytes") as refusal:
        check_texts("consumer", longest + "xy")
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert len(str(refusal.value)) < 200


def test_a_group_id_may_be_as_long_as_a_string_of_the_protocol() -> None:
    check_group_id("g" * MAX_TEXT_BYTES)
    with pytest.raises(KafkaError) as refusal:
        check_group_id("g" * (MAX_TEXT_BYTES + 1))
    assert refusal.value.code is ErrorCode.INVALID_GROUP_ID


def test_the_group_without_a_name_can_have_no_members() -> None:
    check_named("g")
    with pytest.raises(KafkaError) as refusal:
        check_named("")
    assert refusal.value.code is ErrorCode.INVALID_GROUP_ID


def test_a_member_has_a_hundred_protocols_at_most() -> None:
    protocols = [Protocol(str(number), b"") for number in range(MAX_PROTOCOLS + 1)]
    check_protocols(protocols[:-1])
    with pytest.raises(KafkaError, match="101 protocols") as refusal:
        check_protocols(protocols)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
