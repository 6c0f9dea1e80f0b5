"""The functions that docs/code-paths.md names exist, and the table of formats follows the imports."""

import ast
import re
from pathlib import Path

import pytest

from scripts.format_users import format_users
from scripts.project import ROOT

PAGE = ROOT / "docs/code-paths.md"
_ROW = re.compile(r"^\|[^|]*\| `([^`|]+\.py)` \| ([^|]+) \|$", flags=re.MULTILINE)
_NAME = re.compile(r"`([^`]+)`")


def defined(path: Path) -> set[str]:
    """Functions, classes, `Class.method`s and constants of a module."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.ClassDef():
                members = (
                    each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                )
                names |= {node.name, *(f"{node.name}.{each.name}" for each in members)}
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return names


def named() -> list[tuple[str, str]]:
    return [(file, name) for file, cell in _ROW.findall(PAGE.read_text()) for name in _NAME.findall(cell)]


@pytest.mark.parametrize(("file", "name"), named())
def test_function_of_a_code_path_exists(file: str, name: str) -> None:
    assert name in defined(ROOT / "kafscale" / file)


def test_rows_of_the_page_are_found() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and ".py` | `" in line]
    assert len(_ROW.findall(PAGE.read_text())) == len([row for row in rows if row.count("|") == 4])
    assert ("log/journal/writer.py", "JournalWriter.put") in named()


def test_users_of_a_format_are_those_that_import_it(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a.py").write_text(
        "from kafscale.formats.segment import X\nimport kafscale.formats.index\n"
    )
    (tmp_path / "p/b.py").write_text("def f():\n    from kafscale.formats import segment, index\n")
    (tmp_path / "p/c.py").write_text("from kafscale.log import formats\n")
    assert format_users(tmp_path, ["p"]) == {"index": ["p/a.py", "p/b.py"], "segment": ["p/a.py", "p/b.py"]}
