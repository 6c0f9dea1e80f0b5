"""Entries of the folder store: objects are regular files, below folders that are no symbolic links.

A link would let a read or a delete leave the store's folder, and a FIFO would keep its reader waiting; neither is
ever made by a store, so both are refused with an error that names the path.
"""

import os
import stat

from kafscale.errors import ObjectNotFoundError, StoreUnavailableError

OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""For a file that may turn out to be a link or a FIFO: neither is followed or waited for."""

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_object(key: str, path: str, mode: int) -> None:
    """Raises `ObjectNotFoundError` for a folder, `StoreUnavailableError` for what is no regular file either."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise ObjectNotFoundError(key)
    raise refusal(path, mode)


def check_folders(root: str, key: str) -> None:
    """Look at each folder between `root` and the object. Raises `StoreUnavailableError` for a link, `OSError`.

    A `key` that ends with `/` stands for what is in that folder.
    The root itself may be one: it is the operator's choice.
    """
    path = root
    for name in key.lstrip("/").split("/")[:-1]:
        path = f"{path}/{name}"
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return  # The operation itself finds that out, and reports it in its own way.
        if stat.S_ISLNK(mode):
            raise refusal(path, mode)


def refusal(path: str, mode: int) -> StoreUnavailableError:
    """The error for an entry that no store makes."""
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
    return StoreUnavailableError(
        f"{path} is {kind}, which the folder store refuses: move it out of the folder"
    )
