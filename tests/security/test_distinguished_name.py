"""Names of certificates as text: the expected texts are those that Java 17's X500Principal.getName() printed."""

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from kafscale.security.distinguished_name import distinguished_name

CN = NameOID.COMMON_NAME
Attribute = tuple[ObjectIdentifier, str]


def der(*relative: list[Attribute]) -> bytes:
    """An X.501 Name of these relative names, each of one or more attributes."""
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(kind, text) for kind, text in attributes])
            for attributes in relative
        ]
    ).public_bytes()


def test_the_last_name_comes_first() -> None:
    name = der(
        [(NameOID.COUNTRY_NAME, "US")],
        [(NameOID.STATE_OR_PROVINCE_NAME, "MD")],
        [(NameOID.LOCALITY_NAME, "Fulton")],
        [(NameOID.ORGANIZATION_NAME, "mycp")],
        [(NameOID.ORGANIZATIONAL_UNIT_NAME, "SME")],
        [(CN, "Duke")],
    )
    assert distinguished_name(name) == "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US"


def test_types_without_a_keyword_are_numbers_and_hexadecimal() -> None:
    name = der(
        [(NameOID.DOMAIN_COMPONENT, "com")],
        [(NameOID.USER_ID, "u1")],
        [(NameOID.STREET_ADDRESS, "High St 1")],
        [(NameOID.EMAIL_ADDRESS, "a@b.c")],
        [(NameOID.SERIAL_NUMBER, "77")],
        [(ObjectIdentifier("1.2.3.4.5"), "own")],
    )
    assert distinguished_name(name) == (
        "1.2.3.4.5=#0c036f776e,2.5.4.5=#13023737,1.2.840.113549.1.9.1=#16056140622e63,"
        "STREET=High St 1,UID=u1,DC=com"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tkac, Adam", r"CN=Tkac\, Adam"),
        (' #lead+tail="x";<y>\\ ', r"CN=\ \#lead\+tail\=\"x\"\;\<y\>\\\ "),
        ("a#b=c", r"CN=a\#b\=c"),
        ("Ünïcødé 日本", "CN=Ünïcødé 日本"),
        ("two  spaces  ", r"CN=two  spaces\ \ "),
        ("tab\there", "CN=tab\there"),
        ("   ", r"CN=\ \ \ "),
        ("a\r", "CN=a\\\r"),
        ("a\x00b", r"CN=a\00b"),
        ("*.x.com", "CN=*.x.com"),
    ],
)
def test_special_characters_are_escaped(text: str, expected: str) -> None:
    assert distinguished_name(der([(CN, text)])) == expected


def test_attributes_of_one_relative_name_are_joined() -> None:
    name = der([(CN, "a"), (NameOID.ORGANIZATION_NAME, "b")], [(NameOID.ORGANIZATION_NAME, "z")])
    assert distinguished_name(name) == "O=z,CN=a+O=b"


def test_a_name_without_parts_is_empty() -> None:
    assert distinguished_name(der()) == ""


@given(data=st.binary(max_size=60) | st.integers(0, 40).map(lambda end: der([(CN, "abc")])[:end]))
def test_any_bytes_are_a_name_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(distinguished_name(data), str)
