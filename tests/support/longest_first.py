"""A pytest plugin (`-p tests.support.longest_first`): files that take long start first.

So no worker of pytest-xdist ends long after the others. All other files stay in the order that they had.
"""

import pytest

LONGEST = (
    "test_cluster_chaos.py",
    "test_group_restart.py",
    "test_group_chaos.py",
    "test_workloads.py",
    "test_broker_cluster.py",
    "test_crash.py",
    "test_local_cluster.py",
    "test_recover.py",
    "test_lost_leases.py",
    "test_reads.py",
    "test_merging.py",
    "test_java_record_batches.py",
    "test_group_scale.py",
    "test_large_segment.py",
    "test_backup_cluster.py",
    "test_group_metrics.py",
    "test_restart.py",
    "test_many_batches.py",
    "test_commits_without_end.py",
    "test_cluster_racks.py",
    "test_command.py",
    "test_sqlite_model.py",
)
"""Names of files, roughly the longest first."""


def rank(file_name: str) -> int:
    """The place of a file in the order: the longest ones first, all others alike."""
    return LONGEST.index(file_name) if file_name in LONGEST else len(LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After pytest-randomly, which gives all workers the same order."""
    items.sort(key=lambda item: rank(item.path.name))
