"""promtool, which evaluates alert rules: the machine's own, or Debian's unpacked into `.tools`, without a service."""

import shutil
from pathlib import Path

from tests.support.installing import TOOLS, unpack_program

UNPACKED = TOOLS / "promtool"


def promtool_binary() -> Path | None:
    """`promtool` on the PATH, or the one in `.tools`; None if there is none."""
    on_path = shutil.which("promtool")
    if on_path:
        return Path(on_path)
    return UNPACKED if UNPACKED.exists() else None


def promtool_missing() -> str | None:
    """The reason why tests that evaluate rules cannot run here, or None."""
    if promtool_binary() is None:
        return "no promtool on the PATH or in .tools (run `python -m tests.compat.tools`)"
    return None


def install_promtool() -> str:
    """Take it from Debian's package, unless there is one. Returns a summary.

    Raises `CannotInstallError`.
    """
    if promtool_missing() is None:
        return "there already"
    unpack_program("promtool", UNPACKED, package="prometheus")
    return "unpacked from Debian's package"
