"""A pytest plugin (`-p tests.support.longest_first`): files that take long start first.

So no process of `make test` ends long after the others. All other files stay in the order that they had.
"""

import pytest

LONGEST = (
    "test_readme_tour.py",  # and with it all of tests/compat (`tests.schedule.TOGETHER`)
    "test_cluster_chaos.py",
    "test_group_restart.py",
    "test_mechanisms.py",  # and with it all of tests/compat/security
    "test_broker_cluster.py",
    "test_group_chaos.py",
    "test_bill.py",
    "test_recovery_states.py",
    "test_object_store.py",
    "test_damaged_reads.py",
    "test_bucket_multipart.py",
    "test_bucket_errors.py",
    "test_rendered.py",
    "test_messages.py",
    "test_journal_model.py",
    "test_names_and_labels.py",
    "test_group_scale.py",
    "test_metadata_store.py",
    "test_etcd_reconciler.py",
    "test_many_batches.py",
    "test_local_cluster.py",
    "test_retention.py",
    "test_idle_fetch_histories.py",
    "test_witnesses.py",
    "test_recover.py",
    "test_commits_without_end.py",
    "test_restart.py",
    "test_crash.py",
    "test_lost_leases.py",
    "test_reads.py",
    "test_merging.py",
    "test_large_segment.py",
    "test_backup_cluster.py",
    "test_group_metrics.py",
    "test_sqlite_model.py",
)
"""Names of files, roughly the longest first."""


def rank(file_name: str) -> int:
    """The place of a file in the order: the longest ones first, all others alike."""
    return LONGEST.index(file_name) if file_name in LONGEST else len(LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After pytest-randomly."""
    items.sort(key=lambda item: rank(item.path.name))
