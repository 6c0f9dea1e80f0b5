"""The export command as a process that stops where a test wants it to.

`python -m tests.spark_jobs.support.gated_export FOLDER POINT... -- ARGUMENTS of the export`: at each point it makes
the file `FOLDER/POINT.reached` and waits for `FOLDER/POINT.open`.
"""

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

from spark_jobs.export import main
from spark_jobs.job import batch_write, spark_table
from spark_jobs.tables import publish

_POLL_SEC = 0.01


class Point(StrEnum):
    """The points at which the export of a batch can be stopped; each is met once for each batch."""

    STAGED = "rows are written, and invisible"
    DEAD_LETTERS_PUBLISHED = "dead letters are in their table, the rows are not"
    COMMITTING = "every check was passed, the commit to the table is next"
    PUBLISHED = "rows are in the table, and nothing else knows"


def reached_file(folder: Path, point: Point) -> Path:
    """Made by the export when it waits at the point."""
    return folder / f"{point.name}.reached"


def open_file(folder: Path, point: Point) -> Path:
    """Made by the test to let the export go on."""
    return folder / f"{point.name}.open"


class Gates:
    """The points at which this process waits."""

    def __init__(self, folder: Path, points: set[Point]) -> None:
        self._folder = folder
        self._points = points

    def _wait(self, point: Point) -> None:
        if point not in self._points:
            return
        reached_file(self._folder, point).touch()
        while not open_file(self._folder, point).exists():
            time.sleep(_POLL_SEC)

    def around(
        self, before: Point | None, work: Callable[..., Any], after: Point | None
    ) -> Callable[..., Any]:
        """`work` with a gate before it and one after it."""

        @wraps(work)
        def gated(*arguments: Any, **named: Any) -> Any:
            if before is not None:
                self._wait(before)
            result = work(*arguments, **named)
            if after is not None:
                self._wait(after)
            return result

        return gated


def run() -> None:
    """Patch what publishes, and be the export command."""
    folder, *rest = sys.argv[1:]
    divider = rest.index("--")
    gates = Gates(Path(folder), {Point[name] for name in rest[:divider]})
    patches = (
        (spark_table, "publish", Point.STAGED, Point.PUBLISHED),
        (batch_write, "publish", None, Point.DEAD_LETTERS_PUBLISHED),
        (publish, "_commit", Point.COMMITTING, None),
    )
    for module, name, before, after in patches:
        mock.patch.object(module, name, gates.around(before, getattr(module, name), after)).start()
    main(rest[divider + 1 :])


if __name__ == "__main__":
    run()
