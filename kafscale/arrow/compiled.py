"""Compiles functions with numba, and caches the result for other processes where a folder is writable."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

# Numba's settings get their names when it is imported.
_config: Any = numba.config

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compile the function for one signature at once, or load the cached result of another process.

    It runs without the interpreter's lock. The cache is beside the source file, else in the user's cache folder, else
    in a folder of this user's own among the temporary files; if none of them is writable, each process compiles for
    itself, which takes seconds.
    """

    def compile_it(function: Function) -> Function:
        own_choice = _config.CACHE_DIR
        for folder in (None, _temporary_folder):
            try:
                if folder is not None:
                    _config.CACHE_DIR = folder()
                return _compiled(function, signature, is_kept=True)
            except (OSError, RuntimeError):
                # RuntimeError: numba has no folder for the cache. Any other problem is raised again below.
                continue
            finally:
                _config.CACHE_DIR = own_choice
        return _compiled(function, signature, is_kept=False)

    return compile_it


def inlined(function: Function) -> Function:
    """A helper of compiled functions, in the same file: the cache does not notice changes of other files."""
    return cast(Function, numba.njit(forceinline=True)(function))


def _compiled(function: Function, signature: str, *, is_kept: bool) -> Function:
    return cast(Function, numba.njit(signature, cache=is_kept, nogil=True)(function))


def _temporary_folder() -> str:
    """A folder that only this user can write to, since it has code. Raises `OSError`."""
    if sys.platform == "win32":
        raise OSError("folders have no modes here that say who can write to them")
    folder = os.path.join(tempfile.gettempdir(), f"kafscale-compiled-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can write")
    return folder
