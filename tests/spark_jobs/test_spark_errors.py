"""A failure inside of Spark is reported in one line."""

from pyspark.errors import PySparkException

from spark_jobs.job.spark_errors import short_message

TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in
stage 3.0: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/lib/pyspark/worker.py", line 1234, in main
    process()
  File "/opt/lib/kafscale/reader/split_reader.py", line 99, in _read
    raise ExpiredRangeError(told)
kafscale.reader.split_reader.ExpiredRangeError: offsets 3 to 7 of orders-0 expired while they were read

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_an_error_of_a_task_is_shown_in_its_own_words() -> None:
    assert short_message(PySparkException(TASK)) == "offsets 3 to 7 of orders-0 expired while they were read"


def test_an_error_of_spark_is_shown_by_its_first_line() -> None:
    told = short_message(
        PySparkException("[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found.\n== SQL ==\n")
    )
    assert told == "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found."


def test_an_error_without_words_is_shown_by_its_name() -> None:
    assert short_message(ValueError()) == "ValueError"
