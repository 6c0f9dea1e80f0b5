"""Memory right before a page without access: a read past its end kills the process at once."""

import ctypes
import mmap

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


class GuardedMemory:
    """Room for up to `max_bytes`, whose content always ends where the page begins, and begins behind another."""

    def __init__(self, max_bytes: int) -> None:
        self._pages = -(-max_bytes // _PAGE) + 2
        # Not freed: who takes an address from it must not find other memory there.
        self._memory = mmap.mmap(-1, self._pages * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for page in (0, self._pages - 1):
            _protect(self._address + page * _PAGE, is_readable=False)

    @property
    def max_bytes(self) -> int:
        return (self._pages - 2) * _PAGE

    def holding(self, content: bytes) -> memoryview:
        """The content, at the end of the room. It is there until the next is put there."""
        assert len(content) <= self.max_bytes
        end = (self._pages - 1) * _PAGE
        view = memoryview(self._memory)[end - len(content) : end]
        view[:] = content
        return view.toreadonly()


def _protect(address: int, *, is_readable: bool) -> None:
    protection = mmap.PROT_READ | mmap.PROT_WRITE if is_readable else 0
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), protection):
        raise OSError(ctypes.get_errno(), "mprotect")
