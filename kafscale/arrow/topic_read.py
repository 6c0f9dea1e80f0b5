"""`kafscale.read`: a topic as a stream of Arrow record batches."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from kafscale.arrow.columns import arrow_schema
from kafscale.reader.bounds import PointLike, ReadOptionError
from kafscale.reader.progress_line import ProgressLine
from kafscale.reader.requests import plan_of, request_of, source_of
from kafscale.reader.sources import ReadSource
from kafscale.reader.topic_batches import OnProgress, ReadProgress, topic_batches
from kafscale.reader.topic_plan import TopicPlan

_HEADERS = "headers"


def read_topic(
    source: str | os.PathLike[str] | None,
    topic: str,
    *,
    start: PointLike | Mapping[int, PointLike] | None = None,
    end: PointLike | Mapping[int, PointLike] | None = None,
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    on_expired: str = "error",
    isolation_level: str = "read_committed",
    progress: bool | Callable[[ReadProgress], None] = False,
    settings: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """See `kafscale.read`."""
    names = checked_columns(columns)
    request = request_of(
        topic,
        start=start,
        end=end,
        partitions=partitions,
        on_expired=on_expired,
        isolation_level=isolation_level,
    )
    line = ProgressLine() if progress is True else None
    stores = source_of(
        source,
        topic,
        options=settings or {},
        environment=os.environ,
        on_checked=None if line is None else line.checked,
    )
    plan = plan_of(stores, request)
    return planned_reader(stores, plan, names, line or (progress if callable(progress) else None))


def planned_reader(
    source: ReadSource,
    plan: TopicPlan,
    columns: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> pa.RecordBatchReader:
    """The planned records, partition after partition. `columns`: see `checked_columns`.

    The stores are open while batches are read, and are closed with the last one or when the reader is dropped.
    """
    schema = (
        arrow_schema(True)
        if columns is None
        else pa.schema([arrow_schema(True).field(one) for one in columns])
    )
    return pa.RecordBatchReader.from_batches(schema, _batches(source, plan, columns, on_progress))


def checked_columns(columns: Sequence[str] | None) -> Sequence[str] | None:
    """The columns, None for all. Raises `ReadOptionError`."""
    if columns is None:
        return None
    legal = arrow_schema(True).names
    found = [columns] if isinstance(columns, str) else list(columns)
    unknown = [one for one in found if one not in legal]
    if unknown or not found or len(set(found)) < len(found):
        raise ReadOptionError(
            f"columns={columns!r} is not legal: it must be a list of some of {', '.join(legal)}"
        )
    return found


def _batches(
    source: ReadSource, plan: TopicPlan, columns: Sequence[str] | None, on_progress: OnProgress | None
) -> Iterator[pa.RecordBatch]:
    # Imported here: its compiled code is loaded, or compiled the first time.
    from kafscale.arrow.record_columns import record_columns

    include_headers = columns is None or _HEADERS in columns
    with closing(topic_batches(source, plan, on_progress)) as stored:
        for batch in record_columns(stored, plan.topic, include_headers=include_headers):
            yield batch if columns is None else batch.select(columns)
