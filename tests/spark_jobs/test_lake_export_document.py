"""The messages that the documents of exports explain are messages of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    *sorted((ROOT / "spark_jobs").rglob("*.py")),
    *sorted((ROOT / "kafscale/cluster").rglob("*.py")),
    *sorted((ROOT / "kafscale/lake").rglob("*.py")),
    *sorted((ROOT / "kafscale/reader").rglob("*.py")),
    ROOT / "kafscale/commands/export_command.py",
    ROOT / "kafscale/errors.py",
]


def texts() -> Iterator[str]:
    """Every text of the sources, with an ellipsis for what is put into it."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.fixture(scope="module")
def known_texts() -> list[str]:
    return list(texts())


def messages() -> list[str]:
    rows = []
    for page, name in (("lake-export", "export"), ("export-without-spark", "iceberg-export")):
        document = (ROOT / f"docs/{page}.md").read_text()
        _, _, rest = document.partition(f"<!-- begin {name}-messages -->")
        table, _, _ = rest.partition(f"<!-- end {name}-messages -->")
        assert table, page
        rows += [row for row in table.splitlines() if row.startswith("| `")]
    return [row.split("|")[1].strip(" `") for row in rows]


def test_there_are_messages() -> None:
    assert len(messages()) > 15


@pytest.mark.parametrize("message", messages())
def test_a_message_is_one_of_the_code(message: str, known_texts: list[str]) -> None:
    pattern = re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)
    assert any(pattern.search(text) for text in known_texts)
