"""Texts come out of a page as they went in, whatever is in them."""

import string

from hypothesis import given
from hypothesis import strategies as st

from kafscale.pages.markup import (
    MAX_LINKED_CHARACTERS,
    address,
    element,
    joined,
    link,
    name_of,
    named_link,
    written,
)
from kafscale.protocol.quoting import quoted
from tests.pages.html import Document, parsed

# Line ends are those of HTML, where a carriage return is one; names are made printable before (`name_of`).
TEXTS = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]))
ANY_TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("<>&\"'`=/ \0\u202e" + string.whitespace)))


def page_of(*children: object) -> Document:
    body = element("body", *children)  # type: ignore[arg-type]
    return parsed(written(element("html", body)))


@given(TEXTS, TEXTS)
def test_text_and_attributes_are_escaped(text: str, value: str) -> None:
    document = page_of(element("p", text, title=value))
    assert document.text.strip("\n") == text.strip("\n")
    assert document.tags == ["html", "body", "p"]
    assert document.attributes == [("p", "title", value)]


@given(ANY_TEXTS)
def test_any_name_is_text_and_its_link_leads_to_it(name: str) -> None:
    document = page_of(named_link("/group", "name", name))
    assert document.text.strip("\n") == (quoted(name, 80) or "(empty)")
    assert set(document.tags) <= {"html", "body", "a", "bdi"}


@given(TEXTS, TEXTS, TEXTS)
def test_texts_around_elements_keep_their_order(first: str, second: str, third: str) -> None:
    document = page_of(element("p", first, None, element("b", second), third))
    assert document.text.strip("\n") == (first + second + third).strip("\n")


def test_a_name_longer_than_an_address_has_no_link() -> None:
    document = page_of(named_link("/group", "name", "x" * MAX_LINKED_CHARACTERS))
    assert document.links == []
    assert "(4000 characters)" in document.text


def test_addresses_encode_what_has_a_meaning() -> None:
    assert address("/group", name="a/b&c=..", page=2, find=None) == "/group?name=a%2Fb%26c%3D..&page=2"
    assert address("/groups", find=None) == "/groups"


def test_a_name_without_characters_is_visible() -> None:
    assert page_of(name_of("")).text.strip("\n") == "(empty)"


def test_joined_parts_have_separators_between_them() -> None:
    document = page_of(*joined([link("/a", "a"), link("/b", "b"), "c"]))
    assert document.text.strip("\n") == "a, b, c"
