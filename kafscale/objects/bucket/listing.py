"""A listing of the bucket, page by page, that goes on behind the last object after a failure."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import obstore
from obstore.store import ObjectStore as Bucket

from kafscale.formats.object_keys import object_key_problem
from kafscale.objects.object_store import ObjectInfo
from kafscale.objects.request_meter import RequestLog
from kafscale.ops.prices import Operation

if TYPE_CHECKING:
    from obstore import ObjectMeta

    Pages = AsyncIterator[Sequence[ObjectMeta]]

_PAGE = 1000


class Listing:
    """The objects whose key starts with `prefix`, in the order in which the store lists them: by their bytes."""

    def __init__(self, bucket: Bucket, prefix: str, meter: RequestLog) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._meter = meter
        # The library lists folders. The store leaves out what sorts before the prefix without its last
        # character; the rest that does not start with the prefix is left out here.
        self._folder = prefix.rpartition("/")[0]
        self._after = prefix[:-1]
        self._pages: Pages | None = None
        self.is_at_end = bool(self._folder) and object_key_problem(self._folder) is not None

    async def next_page(self) -> list[ObjectInfo]:
        """The next objects, possibly none before the end. May be called again after it raised."""
        has_begun = self._pages is not None
        pages = self._pages or self._open()
        self._pages = None  # One that fails is not asked again.
        if not has_begun:
            self._meter.sent(Operation.LIST_OBJECTS, self._prefix)
        page = await anext(pages, None)
        if page is not None and has_begun:
            # The last page is known to be so without a request.
            self._meter.sent(Operation.LIST_OBJECTS, self._prefix)
        if page is None:
            self.is_at_end = True
            return []
        self._pages = pages
        if page:
            self._after = page[-1]["path"]
            self.is_at_end = self._is_behind(self._after)
        return [_object_info(found) for found in page if found["path"].startswith(self._prefix)]

    def _open(self) -> "Pages":
        offset = None if object_key_problem(self._after) else self._after
        return aiter(obstore.list(self._bucket, self._folder or None, offset=offset, chunk_size=_PAGE))

    def _is_behind(self, key: str) -> bool:
        return key.encode() > self._prefix.encode() and not key.startswith(self._prefix)


class UnorderedListing:
    """The same of a directory bucket, which lists in no order and cannot begin behind a key: all pages, then sorted.

    After a failure it begins again. Only journals are listed so, whose number of entries is bounded by sealing.
    """

    def __init__(self, bucket: Bucket, prefix: str, meter: RequestLog) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._meter = meter
        # The library ends it with a slash, without which a directory bucket refuses a prefix.
        self._folder = prefix.rpartition("/")[0]
        self._pages: Pages | None = None
        self._found: dict[str, ObjectInfo] = {}
        self.is_at_end = bool(self._folder) and object_key_problem(self._folder) is not None

    async def next_page(self) -> list[ObjectInfo]:
        """Nothing before the end, then all. May be called again after it raised."""
        pages, self._pages = self._pages, None
        has_begun = pages is not None
        if pages is None:
            self._found.clear()
            self._meter.sent(Operation.LIST_OBJECTS, self._prefix)
            pages = aiter(obstore.list(self._bucket, self._folder or None, chunk_size=_PAGE))
        page = await anext(pages, None)
        if page is None:
            self.is_at_end = True
            return sorted(self._found.values(), key=lambda info: info.key.encode())
        if has_begun:
            self._meter.sent(Operation.LIST_OBJECTS, self._prefix)
        for found in page:
            if found["path"].startswith(self._prefix):
                self._found[found["path"]] = _object_info(found)
        self._pages = pages
        return []


def _object_info(found: "ObjectMeta") -> ObjectInfo:
    modified_ms = round(found["last_modified"].timestamp() * 1000)
    return ObjectInfo(key=found["path"], size_bytes=found["size"], modified_ms=modified_ms)
