"""Compiles functions with numba, and keeps what was compiled for the next process, wherever it may write."""

import os
import stat
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

# Numba gives its settings their names when it is imported.
_config: Any = numba.config

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compile the function for that one signature at once, or load what another process compiled.

    It runs without the interpreter's lock. What was compiled is kept beside the source file, else in the user's
    cache folder, else in a folder of this user's own among the temporary files; where none of them can be written
    each process compiles for itself, which takes it seconds.
    """

    def compile_it(function: Function) -> Function:
        own_choice = _config.CACHE_DIR
        for folder in (None, _temporary_folder):
            try:
                if folder is not None:
                    _config.CACHE_DIR = folder()
                return _compiled(function, signature, is_kept=True)
            except (OSError, RuntimeError):
                # RuntimeError: numba knows no folder to keep it in. Any other problem comes again below.
                continue
            finally:
                _config.CACHE_DIR = own_choice
        return _compiled(function, signature, is_kept=False)

    return compile_it


def inlined(function: Function) -> Function:
    """A helper of compiled functions, in the same file: what is kept of them does not see that others change."""
    return cast(Function, numba.njit(forceinline=True)(function))


def _compiled(function: Function, signature: str, *, is_kept: bool) -> Function:
    return cast(Function, numba.njit(signature, cache=is_kept, nogil=True)(function))


def _temporary_folder() -> str:
    """A folder that only this user can write: what lies there is code. Raises `OSError`."""
    folder = os.path.join(tempfile.gettempdir(), f"kafscale-compiled-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can write")
    return folder
