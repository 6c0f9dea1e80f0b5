"""All that there is now, in limited micro-batches, as `Trigger.AvailableNow` has it with Spark's Kafka source.

Spark 4.1 has no way for a Python source to have its part of that trigger divided (`SupportsTriggerAvailableNow` and
read limits are Java's only), so it takes everything in one micro-batch. Here the source itself knows the end.
"""

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def run_available_now(writer: DataStreamWriter) -> StreamingQuery:
    """Run the query until it has read what there was when it started; it has ended when this returns.

    Its sources have the option `availableNow`; `maxOffsetsPerTrigger` divides it. The writer has no trigger of its
    own. Raises the query's error.
    """
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query
