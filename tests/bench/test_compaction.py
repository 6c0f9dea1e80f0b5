"""The measurement of compaction."""

import pytest
from click.testing import CliRunner

from bench.compaction import Updates, main
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.records import decode_records


def test_every_batch_has_its_keys_and_values() -> None:
    updates = Updates(records=600, keys=40, value_bytes=30, batch_records=300)
    batches = list(updates.batches())
    found = [record for batch in batches for record in decode_records(memoryview(batch), 1 << 20)]
    assert [read_header(batch, 0).record_count for batch in batches] == [300, 300]
    assert {record.key for record in found} == {b"%09d" % number for number in range(40)}
    assert {len(record.value or b"") for record in found} == {30}
    assert len({record.value for record in found}) == 600


@pytest.mark.nightly
def test_the_newest_record_of_each_key_is_left() -> None:
    shown = CliRunner().invoke(main, ["--records", "4000", "--keys", "50", "--batch", "100"])
    assert shown.exit_code == 0, shown.output
    rows = {line[:52].strip(): line[52:].strip() for line in shown.output.splitlines()[1:]}
    # And one behind, in the segment that is not compacted.
    assert rows["keys"] == rows["records left, that of the newest segment included"] == "51.00"
    assert rows["records removed"] == "3,950.00"
