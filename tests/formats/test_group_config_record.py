"""Configs of groups: their key and stored bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.group_config_record import decode_group_configs, encode_group_configs
from kafscale.metadata import keys

KEY = "group-configs/g"


@pytest.mark.parametrize(
    ("group", "key"),
    [("g", KEY), ("a/b", "group-configs/a%2Fb"), ("ä ö", "group-configs/%C3%A4%20%C3%B6")],
)
def test_the_key_of_a_group(group: str, key: str) -> None:
    assert keys.group_configs(group) == key
    assert keys.group_of_configs(key) == group


def test_stored_bytes() -> None:
    stored = encode_group_configs({"consumer.session.timeout.ms": "50000"})
    assert stored == b'{"version":1,"configs":{"consumer.session.timeout.ms":"50000"}}'


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), min_size=1))
def test_configs_are_read_as_they_were_written(configs: dict[str, str]) -> None:
    assert decode_group_configs(KEY, encode_group_configs(configs)) == configs


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", CorruptDataError),
        (b'{"version":1}', CorruptDataError),
        (b'{"version":1,"configs":{}}', CorruptDataError),
        (b'{"version":1,"configs":["a"]}', CorruptDataError),
        (b'{"version":1,"configs":{"a":1}}', CorruptDataError),
        (b'{"version":2,"configs":{"a":"1"}}', UnknownFormatVersionError),
    ],
)
def test_damage_is_reported_with_the_key(data: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=KEY):
        decode_group_configs(KEY, data)
