"""Options of `format("kafscale")`: what they mean, and that nothing is taken that would have no effect."""

from pathlib import Path
from uuid import UUID

import pytest

from kafscale.cluster.cluster_record import kafka_uuid_text
from kafscale.errors import SettingError
from kafscale.lake.offset_points import (
    LogEdge,
    SourceOptionError,
    SpecificOffsets,
    SpecificTimestamps,
    TimestampForAll,
)
from kafscale.settings.kinds import size_text
from spark_jobs.source import option_rows
from spark_jobs.source.options import (
    Assignment,
    SourceOptions,
    TopicPattern,
    Topics,
    batch_points,
    parse_options,
    settings_of,
    stream_start,
)


def parsed(**options: str) -> SourceOptions:
    return parse_options({"subscribe": "events"} | options)


def refusal(**options: str) -> str:
    with pytest.raises(SourceOptionError) as refused:
        parsed(**options)
    return str(refused.value)


# --- what they mean


def test_a_topic_alone_is_enough() -> None:
    options = parsed()
    assert options == SourceOptions(subscription=Topics(("events",)))
    assert options.fail_on_data_loss
    assert options.include_headers
    assert batch_points(options) == (LogEdge.EARLIEST, LogEdge.LATEST)
    assert stream_start(options) is LogEdge.LATEST


def test_the_default_split_is_what_the_table_says() -> None:
    row = next(row for row in option_rows.SOURCE_OPTIONS if row.name == option_rows.SPLIT_BYTES)
    assert row.default == size_text(parsed().split_bytes)


def test_options_are_known_in_any_case() -> None:
    assert parse_options({"SUBSCRIBE": "events", "includeheaders": "FALSE"}) == parsed(includeHeaders="false")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("subscribe", " a, b ,a,", Topics(("a", "b"))),
        ("subscribePattern", "a|b.*", TopicPattern("a|b.*")),
        ("assign", '{"a":[2,0,2],"b":[1]}', Assignment({"a": (0, 2), "b": (1,)})),
    ],
)
def test_topics(option: str, value: str, expected: object) -> None:
    assert parse_options({option: value}).subscription == expected


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("startingOffsets", "earliest", LogEdge.EARLIEST),
        ("startingOffsets", "Latest", LogEdge.LATEST),
        ("startingOffsets", '{"a":{"0":23,"1":-2}}', SpecificOffsets({("a", 0): 23, ("a", 1): -2})),
        ("startingTimestamp", "1000", TimestampForAll(1000)),
        ("startingOffsetsByTimestamp", '{"a":{"3":5}}', SpecificTimestamps({("a", 3): 5})),
        ("endingOffsets", "latest", LogEdge.LATEST),
        ("endingOffsets", '{"a":{"0":50,"1":-1}}', SpecificOffsets({("a", 0): 50, ("a", 1): -1})),
        ("endingTimestamp", " 7 ", TimestampForAll(7)),
        (
            "endingOffsetsByTimestamp",
            '{"a":{"3":5},"b":{"0":6}}',
            SpecificTimestamps({("a", 3): 5, ("b", 0): 6}),
        ),
    ],
)
def test_points(option: str, value: str, expected: object) -> None:
    options = parsed(**{option: value})
    assert (options.starting if option.startswith("starting") else options.ending) == expected


def test_the_rest() -> None:
    options = parsed(
        minPartitions="7",
        maxOffsetsPerTrigger="99",
        failOnDataLoss="false",
        splitBytes="1MiB",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert (options.min_partitions, options.trigger.max_offsets) == (7, 99)
    assert (options.fail_on_data_loss, options.split_bytes, options.latest_without_match) == (
        False,
        2**20,
        True,
    )


# --- what is refused


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("subscribe", " , "),
        ("startingOffsets", "first"),
        ("startingOffsets", "{}"),
        ("startingOffsets", '{"a":{}}'),
        ("startingOffsets", '{"a":{"0":-3}}'),
        ("startingOffsets", '{"a":{"0":1.5}}'),
        ("startingOffsets", '{"a":{"0":true}}'),
        ("startingOffsets", '{"a":{"-1":1}}'),
        ("startingOffsets", '{"a":{"x":1}}'),
        ("startingOffsets", '{"a":{"0":1,"0":2}}'),
        ("startingOffsets", '{"a":[0]}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingOffsetsByTimestamp", "1000"),
        ("startingOffsetsByTimestamp", '{"a":{"0":-1}}'),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("endingOffsets", '"latest"'),
        ("minPartitions", "0"),
        ("maxOffsetsPerTrigger", "0"),
        ("minOffsetsPerTrigger", "some"),
        ("availableNow", "now"),
        ("topicIds", '{"events":"7"}'),
        ("topicIds", '{"events":7}'),
        ("topicIds", "events"),
        ("failOnDataLoss", "maybe"),
        ("includeHeaders", "1"),
        ("splitBytes", "1"),
    ],
)
def test_an_illegal_value_is_refused_with_what_is_legal(option: str, value: str) -> None:
    problem = refusal(**{option: value})
    assert problem.startswith(f"option {option}={value!r} is not legal: it must be ")


@pytest.mark.parametrize("value", ["[0]", '{"a":[]}', '{"a":[-1]}', '{"a":["0"]}', "{}", "a"])
def test_an_illegal_assignment_is_refused(value: str) -> None:
    with pytest.raises(
        SourceOptionError, match=r'^option assign=.* it must be JSON such as {"events":\[0,1\]}$'
    ):
        parse_options({"assign": value})


def test_an_illegal_pattern_is_refused() -> None:
    with pytest.raises(SourceOptionError, match="it must be a regular expression of Python's"):
        parse_options({"subscribePattern": "a("})
    with pytest.raises(SourceOptionError, match="must not be empty"):
        parse_options({"subscribePattern": " "})


def test_some_topics_are_needed_and_in_one_way() -> None:
    with pytest.raises(SourceOptionError, match="one of the options subscribe, subscribePattern, assign"):
        parse_options({"startingOffsets": "earliest"})
    assert refusal(subscribePattern="e.*") == (
        "options subscribe, subscribePattern contradict each other: give one of them"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest", "startingTimestamp": "1"},
        {"startingOffsetsByTimestamp": '{"events":{"0":1}}', "startingTimestamp": "1"},
        {"endingOffsets": "latest", "endingTimestamp": "1"},
    ],
)
def test_two_points_contradict_each_other(options: dict[str, str]) -> None:
    assert "contradict each other: give one of them" in refusal(**options)


def test_an_unknown_option_is_refused_with_the_legal_ones() -> None:
    problem = refusal(startingOffset="earliest")
    assert problem.startswith(
        "option startingoffset is unknown, did you mean startingOffsets? Legal are subscribe, "
    )
    rows = [row.name for row in option_rows.SOURCE_OPTIONS] + [row.name for row in option_rows.STORE_OPTIONS]
    assert [name for name in rows if name not in problem] == []


@pytest.mark.parametrize("option", [*option_rows.REFUSED, "kafka.security.protocol"])
def test_unused_kafka_source_options_are_refused_with_a_hint(option: str) -> None:
    hint = option_rows.REFUSED.get(option, option_rows.KAFKA_HINT)
    assert refusal(**{option: "x"}) == f"option {option.lower()} is not legal here: {hint}"


def test_a_batch_refuses_latest_start_earliest_end_and_triggers() -> None:
    for options in (
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"events":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"events":{"0":-2}}'},
        {"maxOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5"},
        {"availableNow": "true"},
    ):
        with pytest.raises(SourceOptionError, match=next(iter(options))):
            batch_points(parsed(**options))


def test_ids_of_topics_in_both_forms() -> None:
    topic_id = UUID("b2c1f1e6-7d0c-4b57-9d4f-0a8f6a3c1f10")
    for text in (str(topic_id), kafka_uuid_text(topic_id)):
        assert parsed(topicIds=f'{{"events":"{text}"}}').topic_ids == {"events": topic_id}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("15 m", 900), ("2min", 120), ("1H", 3600), ("250", 0.25)],
)
def test_times_of_triggers_are_those_of_spark(text: str, seconds: float) -> None:
    options = parsed(minOffsetsPerTrigger="10", maxTriggerDelay=text)
    assert (options.trigger.min_offsets, options.trigger.max_delay_sec) == (10, seconds)
    assert parsed(minOffsetsPerTrigger="10").trigger.max_delay_sec == 900


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "must not be more than maxOffsetsPerTrigger=8",
        ),
        ({"maxTriggerDelay": "1s"}, "maxTriggerDelay has no effect without minOffsetsPerTrigger"),
        (
            {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
            "it must be a time such as 500ms, 30s, 15m or 1h",
        ),
        ({"minOffsetsPerTrigger": "1", "availableNow": "true"}, "has no effect with availableNow=true"),
    ],
)
def test_triggers_that_cannot_be_are_refused(options: dict[str, str], told: str) -> None:
    assert told in refusal(**options)


def test_a_stream_has_no_end() -> None:
    for option, value in (("endingOffsets", "latest"), ("endingTimestamp", "1")):
        with pytest.raises(SourceOptionError, match="a stream has no end"):
            stream_start(parsed(**{option: value}))


# --- where the stores are


def test_store_options_go_over_the_environment() -> None:
    environment = {"KAFSCALE_S3_BUCKET": "other", "KAFSCALE_S3_REGION": "eu-west-1", "HOME": "/root"}
    settings = settings_of(
        {
            "etcd": "one:2379,two:2379",
            "bucket": "lake",
            "namespace": "prod",
            "endpoint": "http://s3:9000",
            "KAFSCALE_S3_ACCESS_KEY": "id",
            "kafscale_s3_secret_key": "secret",
        },
        environment,
    )
    assert settings.etcd_endpoints == ("http://one:2379", "http://two:2379")
    assert (settings.s3_bucket, settings.s3_region) == ("lake", "eu-west-1")
    assert (settings.s3_namespace, settings.s3_endpoint) == ("prod", "http://s3:9000")
    assert (settings.s3_access_key, settings.s3_secret_key) == ("id", "secret")


def test_a_data_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_of({"dataDir": "data"}, {}).data_dir == tmp_path / "data"
    assert settings_of({}, {"KAFSCALE_DATA_DIR": "here"}).data_dir == tmp_path / "here"


def test_a_setting_by_name_may_have_no_effect_as_in_environment() -> None:
    everything = {
        "KAFSCALE_DATA_DIR": "/d",
        "KAFSCALE_ETCD_ENDPOINTS": "one:2379",
        "KAFSCALE_S3_BUCKET": "lake",
    }
    assert settings_of(everything, {}) == settings_of({}, everything)


def test_stores_ignore_other_options_and_variables() -> None:
    assert settings_of({"subscribe": "a", "no": "option"}, {"KAFSCALE_OLD": "x"}) == settings_of({}, {})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"bucket": "no such/bucket"},
            "option bucket='no such/bucket' is not legal: it must be a bucket's name",
        ),
        ({"bucket": "one", "KAFSCALE_S3_BUCKET": "two"}, "are the same setting: give one of them"),
        ({"KAFSCALE_S3_BUKET": "one"}, "did you mean KAFSCALE_S3_BUCKET"),
        ({"etcd": "one:2379"}, "KAFSCALE_ETCD_ENDPOINTS needs KAFSCALE_S3_BUCKET"),
        ({"KAFSCALE_S3_CONCURRENCY": "none"}, "KAFSCALE_S3_CONCURRENCY='none' is not legal"),
        ({"dataDir": "d", "etcd": "one:2379", "bucket": "lake"}, "option dataDir='d' has no effect"),
    ],
)
def test_stores_that_cannot_be_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingError) as refused:
        settings_of(options, {})
    assert problem in str(refused.value)


def test_a_data_folder_that_the_environment_outdoes_is_refused() -> None:
    environment = {"KAFSCALE_ETCD_ENDPOINTS": "one:2379", "KAFSCALE_S3_BUCKET": "lake"}
    with pytest.raises(SourceOptionError, match="in the environment"):
        settings_of({"dataDir": "d"}, environment)
