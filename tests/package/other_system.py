"""`python -m tests.package.other_system windows serve`: the `kafscale` command without what another system lacks.

Names that Python has only on Linux are taken out of its modules, and a few calls refuse what they refuse there. It
shows that the code needs none of them, not how it does on such a system.
"""

import asyncio
import contextlib
import fcntl
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "macos": (),
    "windows": ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"),
}
_ON_LINUX_ALONE: Final = (
    "O_DIRECT",
    "O_PATH",
    "O_TMPFILE",
    "fdatasync",
    "posix_fadvise",
    "sched_getaffinity",
)
NAMES: Final[Mapping[str, Mapping[ModuleType, tuple[str, ...]]]] = {
    "macos": {
        # Of preadv its documents do not speak, although it has been there for some years.
        os: (*_ON_LINUX_ALONE, "preadv"),
        fcntl: ("F_OFD_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW"),
        mmap: ("MADV_HUGEPAGE",),
        time: ("CLOCK_BOOTTIME",),
    },
    "windows": {
        os: (
            *_ON_LINUX_ALONE,
            *("O_CLOEXEC", "O_DIRECTORY", "O_DSYNC", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC"),
            *("fork", "getuid", "geteuid", "pread", "preadv", "pwrite", "pwritev", "sysconf", "uname"),
        ),
        mmap: ("MADV_HUGEPAGE", "MAP_ANONYMOUS", "MAP_PRIVATE"),
        time: ("CLOCK_BOOTTIME", "clock_gettime", "clock_gettime_ns"),
    },
}


def pretend(system: str) -> None:
    """Take away what the system lacks. For a process of its own, before it imports anything of Kafscale."""
    assert not any(name.startswith("kafscale") for name in sys.modules)
    import ssl  # noqa: F401  # what the standard library does with the names does not count
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401

    if system == "windows":
        sys.modules["msvcrt"] = _msvcrt()
        _refuse_what_windows_refuses()
    for name in MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in NAMES[system].items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def _msvcrt() -> ModuleType:
    """Its lock of one byte, which every opening of a file has for itself."""
    set_lock, kind = fcntl.F_OFD_SETLK, fcntl.F_WRLCK
    from struct import pack

    def locking(descriptor: int, mode: int, count: int) -> None:
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            fcntl.fcntl(descriptor, set_lock, pack("hhqqi0q", kind, os.SEEK_SET, start, count, 0))
        except BlockingIOError as problem:
            raise PermissionError(13, "Permission denied") from problem

    made = ModuleType("msvcrt")
    made.locking, made.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    return made


def _refuse_what_windows_refuses() -> None:
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    os.open = _refusing(os.open, lambda path: os.path.isdir(path))
    for name in ("unlink", "remove", "rmdir", "replace"):
        setattr(os, name, _refusing(getattr(os, name), _is_open))

    def add_signal_handler(self: object, number: int, callback: object, *arguments: object) -> None:
        raise NotImplementedError

    asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler  # type: ignore[method-assign,assignment]


def _refusing(call: Callable[..., Any], is_refused: Callable[[Any], bool]) -> Callable[..., Any]:
    def called(path: Any, *arguments: Any, **named: Any) -> Any:
        # The last one is what would be replaced.
        if any(is_refused(one) for one in (path, *arguments) if isinstance(one, str | os.PathLike)):
            raise PermissionError(13, "Permission denied", path)
        return call(path, *arguments, **named)

    return called


def _is_open(path: str | os.PathLike[str]) -> bool:
    """True if this process has the file open."""
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(found, os.fstat(int(descriptor))):
                    return True
    return False


def main() -> None:
    """Run the command."""
    system, *arguments = sys.argv[1:]
    pretend(system)
    from kafscale.commands.cli import main as kafscale

    kafscale(arguments, prog_name="kafscale")


if __name__ == "__main__":
    main()
