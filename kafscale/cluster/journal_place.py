"""Checks that the settings and the cluster's marker agree on the bucket of journals.

Without the journal bucket, or with the wrong one, journals would look as if they ended early: acknowledged records
would be left out. So the marker names the bucket from before the first journal there until after the last one.
"""

from dataclasses import dataclass

from kafscale.cluster.marker import find_marker, name_journal_bucket
from kafscale.errors import StartupError
from kafscale.formats.journal_keys import JOURNAL_BUCKET_MARK, journal_bucket_prefix, parse_entry_key
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ObjectReader, ObjectStore


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """The journal bucket of the settings, None for none. `begins_there`: new journals lie there."""

    bucket: str | None = None
    begins_there: bool = False

    @property
    def name(self) -> str | None:
        """As the marker has it."""
        return None if self.bucket is None else self.bucket.removeprefix("s3://")


NO_JOURNAL_BUCKET = JournalPlace()


async def check_journal_place(objects: ObjectReader, namespace: str, place: JournalPlace) -> None:
    """Raises `StartupError` if journals lie where the settings do not say; `StoreError`, `CorruptDataError`."""
    marker = await find_marker(objects, namespace)
    marked = None if marker is None else marker.journal_bucket
    if marked is None or marked == place.name:
        return
    said = "is not set" if place.bucket is None else f"is {place.bucket}"
    raise StartupError(
        f"journals of namespace {namespace!r} lie in the bucket {marked}, and KAFSCALE_JOURNAL_BUCKET {said}: "
        f"acknowledged records would be missing; set it to {marked} (docs/object-store.md says how to leave a "
        "journal bucket, and what to do if it is lost)"
    )


async def settle_journal_place(
    metadata: MetadataReader, objects: ObjectStore, namespace: str, place: JournalPlace
) -> None:
    """The same, then keep the marker up to date: a broker's start, before it begins a journal.

    Raises as `check_journal_place`, also if another broker named another bucket meanwhile.
    """
    await check_journal_place(objects, namespace, place)
    if place.begins_there:
        await name_journal_bucket(objects, namespace, place.name)
        await check_journal_place(objects, namespace, place)
    elif place.bucket is not None and not await _is_used(metadata, objects, namespace):
        await name_journal_bucket(objects, namespace, None)


async def _is_used(metadata: MetadataReader, objects: ObjectStore, namespace: str) -> bool:
    """True if there is a journal in the journal bucket, with entries or not."""
    prefix = keys.JOURNALS + JOURNAL_BUCKET_MARK
    if (await metadata.range(prefix)).items:
        return True
    found = False
    async for info in objects.list(journal_bucket_prefix(namespace)):
        found = found or parse_entry_key(info.key) is not None
    return found
