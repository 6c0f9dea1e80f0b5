"""Entries of the folder store: objects are regular files, below folders that are no symbolic links.

A link would let a read or a delete leave the store's folder, and a FIFO would keep its reader waiting; neither is
ever made by a store, so both are refused with an error that names the path.
"""

import os
import stat

from kafscale.errors import ObjectNotFoundError, StoreUnavailableError
from kafscale.system import FILE_FLAGS, NAMES_ARE_EXACT, NO_FOLLOW, NO_WAIT

OPEN_FLAGS = os.O_RDONLY | FILE_FLAGS | NO_FOLLOW | NO_WAIT
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

    A `key` that ends with `/` stands for what is in that folder. Where a file system takes one name for another,
    a folder that has another name is refused, too: two topics would share their objects.
    The root itself may be one: it is the operator's choice.
    """
    path = root
    for name in key.lstrip("/").split("/")[:-1]:
        above, path = path, f"{path}/{name}"
        try:
            mode = os.lstat(path).st_mode
            if not NAMES_ARE_EXACT and name not in os.listdir(above):
                raise StoreUnavailableError(
                    f"{path} leads to a folder of another name: this file system does not tell them apart, "
                    "so only one of them can be kept here"
                )
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
