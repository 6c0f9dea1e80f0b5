"""Rules from certificate names to principals: the cases of Apache Kafka's SslPrincipalMapperTest, and edges."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.settings.principal_mapping import NoMatchingRuleError, map_name, parse_mapping_rules

SEVERAL = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    "text",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    ],
)
def test_legal_rules_are_read(text: str) -> None:
    assert parse_mapping_rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:(/x/",
    ],
)
def test_rules_that_are_not_legal_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither DEFAULT nor RULE|is not legal"):
        parse_mapping_rules(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_counts(name: str, expected: str) -> None:
    assert map_name(parse_mapping_rules(SEVERAL), name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("RULE://", ["RULE:/"]),
        ("RULE:/.*/", ["RULE:/.*"]),
        ("RULE:/.*/L", ["RULE:/.*/L"]),
        ("  RULE:// ,  DEFAULT  ", ["RULE:/", "DEFAULT"]),
        ("  RULE:   /     / ,  DEFAULT  ", ["RULE:   /     ", "DEFAULT"]),
        ("  RULE:  /     /U   ,DEFAULT  ", ["RULE:  /     /U", "DEFAULT"]),
        (
            "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
            ["RULE:([A-Z]*)/$1/U", "RULE:([a-z]+)/$1", "DEFAULT"],
        ),
        (",   , , ,      , , ,   ", []),
        (",,RULE://,,,DEFAULT,,", ["RULE:/", "DEFAULT"]),
        ("     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,", ["RULE:   /  /U", "DEFAULT"]),
        (r"RULE:\/\\\(\)\n\t/\/\//", [r"RULE:\/\\\(\)\n\t/\/\/"]),
        (r"RULE:\**\/+/*/L,RULE:\/*\**/**/", [r"RULE:\**\/+/*/L", r"RULE:\/*\**/**"]),
    ],
)
def test_rules_are_split_as_in_kafka(text: str, expected: list[str]) -> None:
    assert [str(rule) for rule in parse_mapping_rules(text)] == expected


def test_rules_may_contain_the_words_of_rules() -> None:
    text = (
        "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT"
    )
    assert [str(rule) for rule in parse_mapping_rules(text)] == [
        "RULE:,RULE:,/,RULE:,\\//U",
        "RULE:,/RULE:,",
        "RULE:,RULE:,/L,RULE:,/L",
        "RULE:, DEFAULT, /DEFAULT",
        "DEFAULT",
    ]


def test_escaped_commas_stay_in_a_group() -> None:
    rules = parse_mapping_rules(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert map_name(rules, r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [("$1@$4", "a@$4"), ("$12", "a2"), ("$0", "CN=a,O=b"), (r"\$1", "$1"), ("x$y", "x$y"), (r"$1\\", "a\\")],
)
def test_references_to_no_group_stand_as_they_are(replacement: str, expected: str) -> None:
    rules = parse_mapping_rules(f"RULE:CN=(.),O=(.)/{replacement}/")
    assert map_name(rules, "CN=a,O=b") == expected


def test_a_name_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(NoMatchingRuleError, match="CN=other"):
        map_name(parse_mapping_rules("RULE:^CN=duke$/duke/"), "CN=other")


def test_only_a_match_of_the_whole_name_counts() -> None:
    with pytest.raises(NoMatchingRuleError):
        map_name(parse_mapping_rules("RULE:CN=duke/duke/"), "CN=duke,O=b")


@given(text=st.text(alphabet="RULEDFAT:/\\,$1() .*^x", max_size=40))
def test_any_text_gives_rules_or_a_value_error(text: str) -> None:
    try:
        rules = parse_mapping_rules(text)
    except ValueError:
        return
    with contextlib.suppress(NoMatchingRuleError):
        assert isinstance(map_name(rules, "CN=x"), str)
