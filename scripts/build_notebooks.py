"""Make the notebooks in `examples/notebook` from their sources: `make examples`.

A source is a Python program in Jupytext's percent format. It is executed as a whole, and the notebook gets its
outputs. Whatever changes with each execution is left out, so that a notebook changes only where its results do.

Runs in an environment with the extras `arrow` and `notebook`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import jupytext
from nbclient import NotebookClient

NOTEBOOKS: Final = Path(__file__).resolve().parent.parent / "examples" / "notebook"
CELL_TIMEOUT_SEC: Final = 300


def notebook_of(source: Path) -> Path:
    """The notebook beside its source; dashes in its name, as in those of the documents."""
    return source.with_name(source.stem.replace("_", "-") + ".ipynb")


def execute(source: Path) -> str:
    """The notebook's JSON, with outputs. Raises `CellExecutionError` if a cell fails."""
    notebook = jupytext.read(source)
    # The kernel warns of its own connection, which only this machine reaches.
    quiet = ["--log-level=ERROR"]
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_SEC,
        kernel_name="python3",
        extra_arguments=quiet,
        coalesce_streams=True,  # Two prints may come as one output or as two.
    )
    client.execute()
    _make_stable(notebook)
    return str(jupytext.writes(notebook, fmt="ipynb"))


def _make_stable(notebook: Any) -> None:
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=NOTEBOOKS, help="where to write them")
    folder = parser.parse_args().folder
    for source in sorted(NOTEBOOKS.glob("*.py")):
        made = folder / notebook_of(source).name
        made.write_text(execute(source))
        print(f"{made.name}: {made.stat().st_size / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
