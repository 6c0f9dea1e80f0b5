"""The notebook in examples/: that of its source, executed in order, with nothing of the machine in it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.project import ROOT
from tests.support.process import clean_environment

SOURCE: Final = ROOT / "examples" / "notebook" / "read_a_topic.py"
NOTEBOOK: Final = SOURCE.with_name("read-a-topic.ipynb")
MOST_BYTES: Final = 400_000
_INSTALL_SEC: Final = 1200
_EXECUTE_SEC: Final = 600


def cells_of(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["cells"]
    assert isinstance(found, list)
    return found


def percent_source(cells: list[dict[str, Any]]) -> str:
    """The cells in Jupytext's percent format, without a header."""
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"# %%\n{text}")
        else:
            lines = (f"# {line}".rstrip() for line in text.splitlines())
            parts.append("\n".join(("# %% [markdown]", *lines)))
    return "\n\n".join(parts)


def without_blank_lines(text: str) -> str:
    """The formatter adds some between a function and the next cell; they are no difference."""
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def text_of(output: dict[str, Any]) -> str:
    shown = [
        output.get("text", []),
        *(output.get("data", {}).get(f"text/{kind}", []) for kind in ("plain", "html")),
    ]
    return "".join(line for lines in shown for line in lines)


def kinds(cells: list[dict[str, Any]]) -> list[list[tuple[str, ...]]]:
    """For each code cell the kinds of its outputs: a stream's name, or the media types of what is shown."""
    return [
        [
            (output["output_type"], *sorted(output.get("data", [output.get("name", "")])))
            for output in cell["outputs"]
        ]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def check_outputs(path: Path) -> None:
    """Executed in order, with plots, without warnings, and without names of this machine."""
    cells = cells_of(path)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data", "execute_result"}
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} == {"stdout"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    shown = "\n".join(map(text_of, outputs))
    assert not re.search(
        r"(?i)/(?:tmp|home|root|users|work|var)\b|\b127\.0\.0\.1\b|localhost|\bwarning\b|\btraceback\b", shown
    )
    assert str(ROOT) not in path.read_text()
    assert path.stat().st_size < MOST_BYTES

    (produced,) = re.findall(r"^([\d,]+) orders are in the topic$", shown, re.MULTILINE)
    (read,) = re.findall(r" = ([\d,]+) records$", shown, re.MULTILINE)
    assert read == produced


def test_notebook_is_that_of_its_source() -> None:
    header, _, body = SOURCE.read_text().partition("\n# %%")
    assert header.startswith("# ---\n")
    made = without_blank_lines(percent_source(cells_of(NOTEBOOK)))
    assert made == without_blank_lines(f"# %%{body}"), "`make examples` makes the notebook from its source"


def test_notebook_was_executed_and_shows_nothing_of_the_machine() -> None:
    check_outputs(NOTEBOOK)


def test_notebook_has_no_metadata_of_its_execution() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * len(notebook["cells"])


def test_another_source_is_noticed() -> None:
    cells = cells_of(NOTEBOOK)
    last = without_blank_lines(percent_source(cells))
    cells[-1]["source"] = ["pass"]
    assert without_blank_lines(percent_source(cells)) != last


@pytest.mark.nightly
@pytest.mark.timeout(_INSTALL_SEC + _EXECUTE_SEC + 60)
def test_notebook_runs_in_a_new_environment(tmp_path: Path) -> None:
    """In one that has what `pip` brings for the extra `arrow` and the group `notebook`, and nothing else."""
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    groups = ("--requirements", "pyproject.toml", "--extra", "arrow", "--group", "notebook")
    for command in (
        (uv, "venv", "--quiet", "--python", sys.executable, environment),
        (uv, "pip", "install", "--quiet", "--python", python, *groups),
    ):
        subprocess.run(command, cwd=ROOT, check=True, timeout=_INSTALL_SEC)
    own = {
        name: value
        for name, value in clean_environment().items()
        if not name.startswith(("PYTEST_", "PYTHON"))
    }
    done = subprocess.run(
        [python, "-m", "scripts.build_notebooks", "--folder", tmp_path],
        cwd=ROOT,
        env=own
        | {
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=_EXECUTE_SEC,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = tmp_path / NOTEBOOK.name
    check_outputs(made)
    assert kinds(cells_of(made)) == kinds(cells_of(NOTEBOOK))
