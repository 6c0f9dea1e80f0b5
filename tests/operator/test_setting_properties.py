"""Every setting of the broker can be given to a cluster, in one place."""

import pytest

from kafscale.errors import SettingError
from kafscale.operator.schema import setting_properties
from kafscale.operator.schema.setting_properties import PLACED_ELSEWHERE, ROWS
from kafscale.settings.broker import SETTINGS, Settings


def test_every_setting_has_its_place() -> None:
    fields = {row.field for row in SETTINGS}
    assert fields >= PLACED_ELSEWHERE
    assert {row.field for row in ROWS.values()} == fields - PLACED_ELSEWHERE
    assert ROWS["flushIntervalMs"].variable == "KAFSCALE_FLUSH_INTERVAL_MS"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_default_of_every_setting_is_legal_by_its_schema(name: str) -> None:
    row, schema = ROWS[name], setting_properties.schema()["properties"][name]
    if row.is_secret or getattr(Settings(), row.field) is None or schema["type"] == "string":
        return
    value = {"boolean": lambda t: t == "true", "number": float}.get(str(schema["type"]), str)(row.default)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    assert setting_properties.environment({name: value}) == {row.variable: text}


def test_values_of_documents_become_text() -> None:
    assert setting_properties.environment(
        {"autoCreateTopics": False, "cacheSize": "2GiB", "flushIntervalMs": 0}
    ) == {
        "KAFSCALE_AUTO_CREATE_TOPICS": "false",
        "KAFSCALE_CACHE_SIZE": "2GiB",
        "KAFSCALE_FLUSH_INTERVAL_MS": "0",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00003, "0.00003"),
        (2.5e-7, "0.00000025"),
        (0.005, "0.005"),
        (1e6, "1000000.0"),
        (0, "0"),
        (1.0, "1.0"),
    ],
)
def test_small_numbers_have_no_exponent(value: float, text: str) -> None:
    assert setting_properties.environment({"pricePer1000Gets": value}) == {
        "KAFSCALE_PRICE_PER_1000_GETS": text
    }


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"flushIntervalMs": -1}, ["flushIntervalMs", "-1", "3600000"]),
        ({"pricePer1000Gets": -0.5}, ["pricePer1000Gets", "-0.5", "dollars from 0"]),
        ({"pricePer1000Gets": float("nan")}, ["pricePer1000Gets", "nan"]),
        ({"brokerId": 1}, ["brokerId", "flushIntervalMs"]),
        ({"autoCreateTopics": "perhaps"}, ["autoCreateTopics", "perhaps", "true or false"]),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingError) as refused:
        setting_properties.environment(config)
    assert all(word in str(refused.value) for word in words)
