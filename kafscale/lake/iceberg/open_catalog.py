"""Opens a chosen catalog, and closes what it holds open."""

import contextlib
from collections.abc import Iterator

from pyiceberg.catalog import Catalog, load_catalog

from kafscale.errors import SettingError
from kafscale.lake.iceberg.catalogs import DATABASE_NAME, CatalogChoice
from kafscale.lake.iceberg.lake_errors import lake_errors


@contextlib.contextmanager
def opened_catalog(choice: CatalogChoice, *, creates: bool = True) -> Iterator[Catalog]:
    """The catalog, within the block. `creates`: also one in a folder that is not there yet.

    Raises `LakeError`, and `SettingError` for a folder without a catalog if that may not be made.
    """
    if choice.folder is not None and not creates and not (choice.folder / DATABASE_NAME).exists():
        raise SettingError(f"--to {str(choice.folder)!r} is not legal: there is no {DATABASE_NAME} in it")
    with lake_errors(f"cannot open the catalog {choice.name}"):
        if choice.folder is not None:
            choice.folder.mkdir(parents=True, exist_ok=True)
        catalog = load_catalog(choice.name, **choice.properties)
    try:
        yield catalog
    finally:
        catalog.close()
