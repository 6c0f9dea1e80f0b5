"""The pictures of the documents: each `docs/pictures/NAME.toml` is drawn as `docs/pictures/NAME.svg`."""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from scripts.pictures.boxes import boxes
from scripts.pictures.sequence import sequence

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs/pictures"

_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any], str], str]]] = {"boxes": boxes, "sequence": sequence}


def drawn(source: Path) -> str:
    """The SVG of one text. Raises `KeyError`, `ValueError` where the text is not right."""
    picture = tomllib.loads(source.read_text())
    return _KINDS[picture["kind"]](picture, source.name)


def picture_files() -> dict[str, Callable[[], str]]:
    """Each picture's path in the project, and what makes its content."""
    return {
        f"docs/pictures/{source.stem}.svg": partial(drawn, source) for source in sorted(FOLDER.glob("*.toml"))
    }
