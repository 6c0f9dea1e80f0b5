"""The types of messages: current, of every API that has a decoded request, and without room for a wrong name."""

import pytest

from kafscale.handlers.routes import ROUTES
from kafscale.protocol import api_messages
from kafscale.protocol.api_messages import HeartbeatRequest, HeartbeatResponse, MetadataRequest
from kafscale.protocol.message_classes import REQUEST_CLASSES
from scripts.message_types import PATH, message_types
from scripts.project import ROOT


def test_message_types_are_current() -> None:
    assert (ROOT / PATH).read_text() == message_types(), "run `make docs`"


_READ_BY_ITS_HANDLER = {api_messages.ShareFetchRequest}
"""Its answers are encoded by themselves."""


def test_every_decoded_request_has_a_typed_class() -> None:
    decoded = {REQUEST_CLASSES[route.api] for route in ROUTES if route.message_handler is not None}
    typed = {value for name, value in vars(api_messages).items() if name.endswith("Request")}
    assert decoded | _READ_BY_ITS_HANDLER == typed - {api_messages.Request}


def test_unknown_field_of_a_built_message_is_refused() -> None:
    # mypy reports an ignored error that is none: it refuses the name, too.
    with pytest.raises(ValueError, match="error_codes"):
        HeartbeatResponse(error_codes=0)  # type: ignore[call-arg]


def test_unknown_field_of_a_read_message_is_refused() -> None:
    with pytest.raises(AttributeError, match="groupid"):
        HeartbeatRequest().groupid  # type: ignore[attr-defined]  # noqa: B018


def test_field_that_is_not_given_has_its_default() -> None:
    assert HeartbeatRequest().group_instance_id is None
    assert MetadataRequest().allow_auto_topic_creation is True
