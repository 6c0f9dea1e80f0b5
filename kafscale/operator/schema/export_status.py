"""JSON Schema of what is particular to a KafscaleExport's `status`."""

from typing import Any, Final

MAX_TOPICS: Final = 20
MAX_PARTITIONS: Final = 8
MAX_ERROR_CHARACTERS: Final = 300


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _word(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _time(description: str) -> dict[str, Any]:
    return {"type": "string", "format": "date-time", "description": description}


def properties() -> dict[str, Any]:
    """The fields besides phase and conditions."""
    return {
        "workload": _word("The CronJob or Deployment, such as CronJob/orders-export."),
        "lastScheduleTime": _time("When the last run was started."),
        "lastSuccessfulTime": _time("When the last successful run ended."),
        "topicCount": _number("Number of topics."),
        "failedTopics": _number("Number of topics whose export failed."),
        "lag": _number("Offsets that the tables lack, of all topics."),
        "rows": _number("Rows written so far, of all topics."),
        "deadLetters": _number("Values and keys that did not decode so far, of all topics."),
        "lastCommitTime": _time("When an export last reported progress."),
        "completeTime": _time(
            "The newest moment of which every table has everything that was published until then."
        ),
        "topics": {
            "type": "array",
            "description": f"The topics, at most {MAX_TOPICS}: failed ones first, then those with the largest lag.",
            "items": {"type": "object", "properties": _topic()},
        },
        "omittedTopics": _number("Number of topics that are not listed."),
    }


def _topic() -> dict[str, Any]:
    return {
        "topic": _word("Its name."),
        "table": _word("Its table's full name."),
        "state": _word("running, finished, failed, or waiting: nothing was exported yet."),
        "error": _word(f"Why it failed; at most {MAX_ERROR_CHARACTERS} characters."),
        "lag": _number("Offsets that the table lacks."),
        "rows": _number("Rows written so far."),
        "deadLetters": _number("Values and keys that did not decode so far."),
        "lastCommitTime": _time("When the export last reported progress."),
        "completeTime": _time(
            "The newest moment of which the table has everything that was published until then."
        ),
        "partitionCount": _number("Number of exported partitions."),
        "partitions": {
            "type": "array",
            "description": f"Partitions, at most {MAX_PARTITIONS}: those with the largest lag.",
            "items": {
                "type": "object",
                "properties": {
                    "partition": _number("Its number."),
                    "nextOffset": _number("The first offset that is not exported."),
                    "logEndOffset": _number("Its log end offset."),
                },
            },
        },
    }
