"""etcd for the tests: the machine's own, or Debian's package unpacked into `.tools`, which installs no service."""

import os
import shutil
from pathlib import Path

from tests.support.installing import TOOLS, unpack_program

UNPACKED = TOOLS / "etcd"


def etcd_binary() -> Path | None:
    """KAFSCALE_TEST_ETCD, or `etcd` on the PATH, or the one in `.tools`; None if there is none."""
    chosen = os.environ.get("KAFSCALE_TEST_ETCD")
    if chosen:
        return Path(chosen)
    on_path = shutil.which("etcd")
    if on_path:
        return Path(on_path)
    return UNPACKED if UNPACKED.exists() else None


def etcd_missing() -> str | None:
    """The reason why tests on etcd cannot run here, or None."""
    binary = etcd_binary()
    if binary is None:
        return "no etcd on the PATH, in .tools or in KAFSCALE_TEST_ETCD (run `python -m tests.compat.tools`)"
    return None if os.access(binary, os.X_OK) else f"{binary} cannot be executed"


def install_etcd() -> str:
    """Take the server from Debian's package, unless there is one. Returns a summary.

    Raises `CannotInstallError`.
    """
    if etcd_missing() is None:
        return "there already"
    unpack_program("etcd", UNPACKED, package="etcd-server")
    return "unpacked from Debian's package"
