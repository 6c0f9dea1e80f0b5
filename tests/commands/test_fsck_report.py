"""The words of `kafscale fsck` for reports whose objects take long to make."""

from kafscale.commands.fsck_report import as_text
from kafscale.tools.fsck.findings import FsckReport, Orphan, OrphanReason, PartitionReport, Standing


def orphan(number: int, reason: OrphanReason) -> Orphan:
    return Orphan(key=f"n/t/0/segment-{number:020d}.kfs", size_bytes=10, modified_ms=1, reason=reason)


def report(*orphans: Orphan) -> FsckReport:
    partition = PartitionReport(topic="t", partition=0, standing=Standing.ACTIVE, orphans=orphans)
    return FsckReport(namespace="n", cluster_id="c", is_verified=False, partitions=(partition,))


def test_segments_of_a_merge_are_counted_not_listed() -> None:
    text = as_text(report(*(orphan(number, OrphanReason.SUPERSEDED) for number in range(300))), (), ())
    assert "Nothing is remarkable about any partition." in text
    assert "superseded: what it holds is in a merged segment: 300 objects, 3000 bytes" in text
    assert "segment-" not in text
    assert text.endswith("No problems; 0 warnings, 0 orphans, 300 replaced objects.")


def test_orphans_beside_replaced_objects_are_listed() -> None:
    text = as_text(report(orphan(1, OrphanReason.EXPIRED), orphan(2, OrphanReason.LEFTOVER)), (), ())
    assert "segment-00000000000000000002.kfs" in text
    assert "segment-00000000000000000001.kfs" not in text
    assert text.endswith("No problems; 0 warnings, 1 orphans, 1 replaced objects.")
