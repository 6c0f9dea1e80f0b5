"""A small Debian like the one that our images are based on, made once with debootstrap into `.tools`.

`python -m tests.support.debian_base` makes it. Python is not in it: the machine's is laid over. How the machine
reaches package registries (apt's sources, certificates) is.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.installing import TOOLS, CannotInstallError, ensure_command, run_command

SUITE = "bookworm"
BASE = TOOLS / f"debian-{SUITE}"

# Of the packages in Python's slim images: certificates, names of protocols, time zones, libraries of Python.
_PACKAGES = (
    "ca-certificates",
    "libbz2-1.0",
    "libexpat1",
    "libffi8",
    "liblzma5",
    "libncursesw6",
    "libreadline8",
    "libsqlite3-0",
    "libssl3",
    "libuuid1",
    "netbase",
    "tzdata",
    "zlib1g",
)
# Files that Debian's slim variant removes, of its own packages and of those that are installed later.
_LEFT_OUT = ("doc", "groff", "info", "linda", "lintian/overrides", "locale", "man")
_KEPT = ("/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias")
_DPKG_CONFIGURATION = "".join(
    [f"path-exclude /usr/share/{name}/*\n" for name in _LEFT_OUT]
    + [f"path-include {path}\n" for path in _KEPT]
)
_STAMP = BASE.with_suffix(".stamp")
_APT = Path("/etc/apt")
_CERTIFICATES = Path("/usr/local/share/ca-certificates")


def debian_base_missing() -> str | None:
    """The reason why there is no base to build images on, or None."""
    if BASE.is_dir() and _STAMP.exists() and _STAMP.read_text() == _digest():
        return None
    return (
        "there is no Debian to build images on in .tools (run `python -m tests.support.debian_base` as root)"
    )


def install_debian_base() -> str:
    """Install it; returns a summary. Raises `CannotInstallError`."""
    if debian_base_missing() is None:
        return "there already"
    if os.geteuid() != 0:
        raise CannotInstallError("debootstrap needs root")
    ensure_command("debootstrap", package="debootstrap")
    TOOLS.mkdir(exist_ok=True)
    _STAMP.unlink(missing_ok=True)
    shutil.rmtree(BASE, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{BASE.name}.", dir=TOOLS))
    try:
        _make(folder)
        folder.chmod(0o755)
        folder.rename(BASE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _STAMP.write_text(_digest())
    return "made with debootstrap"


def _make(root: Path) -> None:
    mirror = _mirror()
    packages = ",".join(_PACKAGES)
    run_command(
        "debootstrap",
        "--variant=minbase",
        f"--include={packages}",
        SUITE,
        str(root),
        *([mirror] if mirror else []),
    )
    if mirror is not None:
        (root / "etc/apt/sources.list").unlink()
    for path in _machine_files():
        is_certificate = path.is_relative_to(_CERTIFICATES)
        inside = Path("/usr/share/ca-certificates/machine", path.name) if is_certificate else path
        target = root / inside.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if is_certificate:
            with (root / "etc/ca-certificates.conf").open("a") as configuration:
                configuration.write(f"machine/{path.name}\n")
    run_command("chroot", str(root), "update-ca-certificates")
    run_command("chroot", str(root), "apt-get", "clean")
    shutil.rmtree(root / "var/lib/apt/lists")
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    _slim(root)


def _slim(root: Path) -> None:
    (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(_DPKG_CONFIGURATION)
    for name in _LEFT_OUT:
        for folder, _, files in os.walk(root / "usr/share" / name, topdown=False):
            for file in files:
                path = Path(folder, file)
                if not any(Path("/", path.relative_to(root)).match(kept) for kept in _KEPT):
                    path.unlink()
            if not os.listdir(folder) and Path(folder) != root / "usr/share" / name:
                Path(folder).rmdir()


def _mirror() -> str | None:
    """The machine's source of the suite's packages; None if it is another Debian, or no Debian."""
    if shutil.which("apt-get") is None:
        return None
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Codename: {SUITE}",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return told[0] if told else None


def _machine_files() -> Iterator[Path]:
    """The machine's access to registries: apt's sources and their configuration, certificates."""
    if _mirror() is not None:
        for name in ("sources.list", "sources.list.d", "apt.conf.d"):
            found = _APT / name
            files = sorted(found.iterdir()) if found.is_dir() else [found] * found.exists()
            yield from (file for file in files if re.fullmatch(r"[\w-]+(\.list|\.sources)?", file.name))
    yield from sorted(_CERTIFICATES.glob("*.crt"))


def _digest() -> str:
    digest = hashlib.sha256(repr((SUITE, _PACKAGES, _DPKG_CONFIGURATION)).encode())
    for path in _machine_files():
        digest.update(repr((str(path), path.read_bytes())).encode())
    return digest.hexdigest()


def main() -> int:
    """Tests report why they are skipped, so it is no failure where there can be none."""
    try:
        print(f"debian: {install_debian_base()}", flush=True)
    except CannotInstallError as error:
        print(f"debian: not installed, images are not built: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
