"""The parameters of an address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.pages.frame import Asked, BadQueryError, Frame, asked_of, document
from kafscale.pages.markup import address
from tests.pages.html import parsed


def frame_of(asked: Asked) -> Frame:
    return Frame(broker_id=1, version="1.0", cluster_id="<c>", shown_at="now", asked=asked)


def test_parameters_are_read_and_others_ignored() -> None:
    asked = asked_of("/topics", "find=or%64&sort=in&page=3&refresh=5&other=1")
    assert (asked.find, asked.sort, asked.page, asked.is_refreshed) == ("ord", "in", 3, True)
    assert asked_of("/", "") == Asked(path="/")


@pytest.mark.parametrize("query", ["page=0", "page=-1", "page=x", "page=", "page=12345678", "page=\u0663"])
def test_pages_that_are_no_number_are_refused(query: str) -> None:
    with pytest.raises(BadQueryError, match="page is a number"):
        asked_of("/topics", query)


def test_too_many_parameters_are_refused() -> None:
    with pytest.raises(BadQueryError, match="at most 16"):
        asked_of("/topics", "&".join(["a=1"] * 17))


@given(st.text())
def test_no_query_breaks_the_page(query: str) -> None:
    try:
        asked = asked_of("/topics", query)
    except BadQueryError:
        return
    parsed(document(frame_of(asked), query, query))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_names_survive_links(name: str) -> None:
    assert asked_of("/group", address("/group", name=name).partition("?")[2]).name == name


def test_refreshing_is_an_option_that_links_keep() -> None:
    still = parsed(document(frame_of(asked_of("/groups", "find=a")), "Groups"))
    assert ("meta", "http-equiv", "refresh") not in still.attributes
    assert "/groups?find=a&refresh=5" in still.links
    moving = parsed(document(frame_of(asked_of("/groups", "find=a&refresh=5")), "Groups"))
    assert ("meta", "http-equiv", "refresh") in moving.attributes
    assert "/groups?find=a" in moving.links
    assert "/topics?refresh=5" in moving.links
