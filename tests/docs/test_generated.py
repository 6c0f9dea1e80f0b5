"""Generated parts of the documents are what the code says now."""

from pathlib import Path

import pytest

from scripts.generate_docs import GENERATED, filled, generated, whole_files
from scripts.pictures.files import FOLDER, drawn, picture_files
from scripts.project import ROOT


@pytest.mark.parametrize("document", GENERATED)
def test_generated_tables_are_current(document: str) -> None:
    assert (ROOT / document).read_text() == generated(document), "run `make docs`"


def test_a_table_takes_the_place_of_an_older_one() -> None:
    text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"
    assert filled(text, "x", "new") == "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n"
    with pytest.raises(ValueError, match="begin y"):
        filled(text, "y", "new")


@pytest.mark.parametrize("picture", picture_files())
def test_pictures_are_current(picture: str) -> None:
    assert (ROOT / picture).read_text() == picture_files()[picture](), "run `make docs`"


def test_every_picture_has_a_text() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == {path.stem for path in FOLDER.glob("*.toml")}
    assert set(picture_files()) <= set(whole_files())


def test_arrow_between_boxes_that_do_not_face_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "p.toml"
    text.write_text(
        'kind = "boxes"\ndescription = "d"\n'
        '[[box]]\nname = "a"\nat = [0, 0]\nsize = [1, 1]\nlines = ["A"]\n'
        '[[box]]\nname = "b"\nat = [5, 5]\nsize = [1, 1]\nlines = ["B"]\n'
        '[[arrow]]\nfrom = "a"\nto = "b"\n'
    )
    with pytest.raises(ValueError, match="no side of 'A' faces 'B'"):
        drawn(text)
