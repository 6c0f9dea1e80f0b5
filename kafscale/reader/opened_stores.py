"""The stores that the settings name, as a `StoreThread` opens them."""

from contextlib import AsyncExitStack

from kafscale.broker.stores import open_for_reading, open_objects_for_reading
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.settings.broker import Settings


class OpenedStores:
    """Opens them for reading: nothing is written, and no folder is made."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        # Not a replica: only the primary could tell which topic its objects are of.
        return open_objects_for_reading(self._settings, stack)

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        return (await open_for_reading(self._settings, stack))[0]
