"""Client quotas as stored: keys of entities, values, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.quota_record import (
    DEFAULT,
    QuotaEntity,
    decode_quota_key,
    decode_quotas,
    encode_quotas,
    quota_key,
)

STORED = [
    (QuotaEntity(user="alice"), "quotas/user=alice"),
    (QuotaEntity(client_id="app"), "quotas/client-id=app"),
    (QuotaEntity(user="alice", client_id="app"), "quotas/user=alice/client-id=app"),
    (QuotaEntity(user=DEFAULT, client_id="a/b"), "quotas/user=<default>/client-id=a%2Fb"),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), "quotas/user=<default>/client-id=<default>"),
    (QuotaEntity(user="<default>"), "quotas/user=%3Cdefault%3E"),
    (QuotaEntity(ip="::1"), "quotas/ip=%3A%3A1"),
    (QuotaEntity(ip=DEFAULT), "quotas/ip=<default>"),
]

names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
entities = st.one_of(
    st.builds(QuotaEntity, user=names, client_id=names), st.builds(QuotaEntity, ip=names)
).filter(lambda entity: entity.is_legal)


@pytest.mark.parametrize(("entity", "key"), STORED)
def test_key_of_an_entity_is_as_documented(entity: QuotaEntity, key: str) -> None:
    assert quota_key(entity) == key
    assert decode_quota_key(key) == entity


@given(entities)
def test_key_gives_its_entity_back(entity: QuotaEntity) -> None:
    assert decode_quota_key(quota_key(entity)) == entity


@pytest.mark.parametrize(
    "key",
    [
        "quotas/",
        "quotas/user",
        "quotas/user=",
        "quotas/group=a",
        "quotas/client-id=a/user=b",
        "quotas/user=a/user=b",
        "quotas/user=a/ip=b",
        "quotas/user=a b",
        "quotas/user=%FF",
    ],
)
def test_key_of_no_entity_is_refused(key: str) -> None:
    with pytest.raises(CorruptDataError, match="quotas/"):
        decode_quota_key(key)


def test_quotas_are_stored_as_documented() -> None:
    quotas = {"request_percentage": 12.5, "producer_byte_rate": 1048576.0, "of_the_future": 1.0}
    stored = encode_quotas(quotas)
    assert (
        stored
        == b'{"version":1,"quotas":{"of_the_future":1.0,"producer_byte_rate":1048576.0,"request_percentage":12.5}}'
    )
    assert decode_quotas("quotas/user=a", stored) == quotas


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", CorruptDataError),
        (b'{"version":2,"quotas":{"a":1}}', UnknownFormatVersionError),
        (b'{"version":1}', CorruptDataError),
        (b'{"version":1,"quotas":{}}', CorruptDataError),
        (b'{"version":1,"quotas":[1]}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":true}}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":"1"}}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":0}}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":-1}}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":NaN}}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":Infinity}}', CorruptDataError),
        (b'{"version":1,"quotas":{"a":1' + b"0" * 400 + b"}}", CorruptDataError),
    ],
)
def test_quotas_that_cannot_be_read_name_their_key(data: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="quotas/user=a"):
        decode_quotas("quotas/user=a", data)
