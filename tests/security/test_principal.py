import pytest

from kafscale.security.principal import Principal, parse_principal


@pytest.mark.parametrize("principal", [Principal("User", "alice"), Principal("User", "CN=a:b,O=c")])
def test_a_principal_is_parsed_from_its_text(principal: Principal) -> None:
    assert parse_principal(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_a_text_without_kind_or_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as in User:alice"):
        parse_principal(text)
