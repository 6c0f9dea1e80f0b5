"""`kafscale` as a process that stops before or after the commit of a batch, until the test lets it go on.

`python -m tests.lake.support.gated_export FOLDER POINT ARGUMENTS...`: at the point it makes the file
`FOLDER/reached` and waits for `FOLDER/open`.
"""

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

from kafscale.commands.cli import main
from kafscale.lake.iceberg.publish import publish

_POLL_SEC = 0.01


class Point(StrEnum):
    """The points at which the export of a batch can be stopped."""

    WRITTEN = "written"
    COMMITTED = "committed"


def run() -> None:
    """Patch what publishes, and be the command."""
    folder, point, *arguments = sys.argv[1:]

    def wait() -> None:
        (Path(folder) / "reached").touch()
        while not (Path(folder) / "open").exists():
            time.sleep(_POLL_SEC)

    def gated(*given: Any) -> None:
        if point == Point.WRITTEN:
            wait()
        publish(*given)
        if point == Point.COMMITTED:
            wait()

    mock.patch("kafscale.lake.iceberg.topic_table.publish", gated).start()
    main(arguments)


if __name__ == "__main__":
    run()
