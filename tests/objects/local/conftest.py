"""The store that most tests of the folder backend use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafscale.objects.local.store import LocalStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalStore]:
    """On a folder `objects` of the test's own."""
    opened = LocalStore(tmp_path / "objects")
    yield opened
    await opened.close()
