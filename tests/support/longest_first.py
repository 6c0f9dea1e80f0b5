"""A pytest plugin (`-p tests.support.longest_first`): files that take long begin first.

So no worker of pytest-xdist ends long after the others. All other files stay in the order that they had.
"""

import pytest

LONGEST: tuple[str, ...] = ()
"""Names of files, longest first, by the seconds that they take on two free cores."""


def rank(file_name: str) -> int:
    """Where a file stands: the longest ones first, all others alike."""
    return LONGEST.index(file_name) if file_name in LONGEST else len(LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After pytest-randomly, which gives all workers the same order."""
    items.sort(key=lambda item: rank(item.path.name))
