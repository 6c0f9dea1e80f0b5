"""A broker's listeners in its record: the old form where it can say them, the new one beside it otherwise."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_broker_record, encode_broker_record
from kafscale.metadata.model import BrokerRecord, Endpoint, ListenerName

NAMES = st.from_regex(r"[A-Z0-9_]([A-Z0-9_.-]{0,10}[A-Z0-9_])?", fullmatch=True).map(ListenerName)
ENDPOINTS = st.builds(Endpoint, st.text(min_size=1, max_size=20), st.integers(1, 65535))
LISTENERS = st.dictionaries(
    st.sampled_from([ListenerName.PLAINTEXT, ListenerName.EXTERNAL]) | NAMES,
    ENDPOINTS,
    min_size=1,
    max_size=5,
)


def broker(listeners: dict[ListenerName, Endpoint]) -> BrokerRecord:
    return BrokerRecord(broker_id=1, host="", port=0).reached_at(listeners)


@given(LISTENERS)
def test_every_listener_comes_back(listeners: dict[ListenerName, Endpoint]) -> None:
    found = decode_broker_record("brokers/1", encode_broker_record(broker(listeners)))
    assert found.endpoints() == listeners
    assert {name: found.endpoint(name) for name in listeners} == listeners
    assert found.endpoint(ListenerName("NOT-THERE")) is None


@given(LISTENERS)
def test_older_brokers_read_what_they_know(listeners: dict[ListenerName, Endpoint]) -> None:
    fields = json.loads(encode_broker_record(broker(listeners)))
    main = listeners.get(ListenerName.PLAINTEXT) or next(iter(listeners.values()))
    assert (fields["host"], fields["port"]) == main
    external = listeners.get(ListenerName.EXTERNAL)
    assert fields.get("external") == (None if external is None else list(external))


@pytest.mark.parametrize(
    "listeners",
    [
        {ListenerName.PLAINTEXT: Endpoint("a", 1)},
        {ListenerName.PLAINTEXT: Endpoint("a", 1), ListenerName.EXTERNAL: Endpoint("b", 2)},
    ],
)
def test_the_two_old_listeners_are_stored_as_before(listeners: dict[ListenerName, Endpoint]) -> None:
    assert "listeners" not in json.loads(encode_broker_record(broker(listeners)))


def test_the_new_form_is_as_documented() -> None:
    data = encode_broker_record(
        broker({ListenerName("INSIDE"): Endpoint("a", 1), ListenerName("OUTSIDE"): Endpoint("b", 2)})
    )
    assert data == (
        b'{"version":1,"broker_id":1,"host":"a","port":1,"rack":null,"state":"running",'
        b'"listeners":{"INSIDE":["a",1],"OUTSIDE":["b",2]}}'
    )


@pytest.mark.parametrize(
    "listeners",
    [[], "A", {"A": None}, {"A": ["h"]}, {"A": ["h", "1"]}, {"A": ["h", True]}, {"a b": ["h", 1]}],
)
def test_listeners_that_are_none_are_refused(listeners: object) -> None:
    fields = json.loads(encode_broker_record(broker({ListenerName.PLAINTEXT: Endpoint("a", 1)})))
    with pytest.raises(CorruptDataError, match="brokers/1"):
        decode_broker_record("brokers/1", json.dumps({**fields, "listeners": listeners}).encode())
