"""etcd for the tests: the machine's own, or Debian's package unpacked into `.tools`, which installs no service."""

import os
import shutil
import tempfile
from pathlib import Path

from tests.support.installing import TOOLS, CannotInstallError, run_command

UNPACKED = TOOLS / "etcd"
PACKAGE = "etcd-server"


def etcd_binary() -> Path | None:
    """KAFSCALE_TEST_ETCD, or `etcd` on the PATH, or the one in `.tools`; None when there is none."""
    chosen = os.environ.get("KAFSCALE_TEST_ETCD")
    if chosen:
        return Path(chosen)
    on_path = shutil.which("etcd")
    if on_path:
        return Path(on_path)
    return UNPACKED if UNPACKED.exists() else None


def etcd_missing() -> str | None:
    """Why tests on etcd cannot run here, or None."""
    binary = etcd_binary()
    if binary is None:
        return "no etcd on the PATH, in .tools or in KAFSCALE_TEST_ETCD (run `python -m tests.compat.tools`)"
    return None if os.access(binary, os.X_OK) else f"{binary} cannot be executed"


def install_etcd() -> str:
    """Take the server out of Debian's package, unless there is one. Returns what was done.

    Raises `CannotInstallError`.
    """
    if etcd_missing() is None:
        return "there already"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotInstallError("no etcd on the PATH and no apt-get here; install etcd by hand")
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS) as name:
        folder = Path(name)
        # As whoever runs this: apt's own user cannot write here.
        download = ("apt-get", "download", "--quiet", "--option", "APT::Sandbox::User=root", PACKAGE)
        try:
            run_command(*download, folder=folder)
        except CannotInstallError:
            # On a fresh machine there are no lists of packages yet. Only root can fetch them.
            run_command("apt-get", "update", "--quiet")
            run_command(*download, folder=folder)
        package = next(folder.glob("*.deb"))
        run_command("dpkg-deb", "--extract", str(package), str(folder / "unpacked"))
        (folder / "unpacked" / "usr" / "bin" / "etcd").rename(UNPACKED)
    return "unpacked from Debian's package"
