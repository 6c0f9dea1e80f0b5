"""The terms of a layout, from the command line's words."""

from kafscale.lake.layout_terms import split_terms


def test_terms_are_divided_by_commas_outside_of_parentheses() -> None:
    assert split_terms("days(timestamp), bucket(16, key) ,value") == [
        "days(timestamp)",
        "bucket(16, key)",
        "value",
    ]
    assert split_terms(" ") == []
