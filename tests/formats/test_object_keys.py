"""Object keys: their exact form, their order, and which names may be part of them."""

import pytest

from kafscale.formats import object_keys
from kafscale.formats.object_keys import CheckpointKey, Compaction, SegmentKey

MAX_OFFSET = 2**63 - 1


def test_keys_have_the_form_that_the_format_page_gives() -> None:
    assert object_keys.segment_key("production", "orders", 7, 40) == (
        "production/orders/7/segment-00000000000000000040.kfs"
    )
    assert object_keys.index_key("production", "orders", 7, 40) == (
        "production/orders/7/segment-00000000000000000040.index"
    )
    assert object_keys.merged_segment_key("production", "orders", 7, 40, 69) == (
        "production/orders/7/segment-00000000000000000040-00000000000000000069.kfs"
    )
    assert object_keys.merged_index_key("production", "orders", 7, 40, 69) == (
        "production/orders/7/segment-00000000000000000040-00000000000000000069.index"
    )
    assert object_keys.checkpoint_key("production", "orders", 7, 40, 5, "a1b2") == (
        "_kafscale/production/checkpoints/orders/7/00000000000000000040-5-a1b2.ckpt"
    )


def test_prefix_contains_no_keys_of_names_that_start_alike() -> None:
    assert object_keys.segment_key("n", "t", 1, 0).startswith(object_keys.partition_prefix("n", "t", 1))
    assert not object_keys.segment_key("n", "t", 10, 0).startswith(object_keys.partition_prefix("n", "t", 1))
    assert object_keys.segment_key("n", "t", 1, 0).startswith(object_keys.topic_prefix("n", "t"))
    assert not object_keys.segment_key("n", "t-2", 1, 0).startswith(object_keys.topic_prefix("n", "t"))
    assert object_keys.topic_prefix("n", "t").startswith(object_keys.namespace_prefix("n"))
    checkpoint = object_keys.checkpoint_key("n", "t", 1, 0, 0, "x")
    assert checkpoint.startswith(object_keys.checkpoints_partition_prefix("n", "t", 1))
    assert checkpoint.startswith(object_keys.checkpoints_topic_prefix("n", "t"))
    assert not checkpoint.startswith(object_keys.checkpoints_partition_prefix("n", "t", 10))
    assert not checkpoint.startswith(object_keys.namespace_prefix("n"))


def test_the_order_of_keys_is_the_order_of_offsets() -> None:
    offsets = [0, 9, 10, 99, 100, 2**31, 10**18, MAX_OFFSET]
    keys = [object_keys.segment_key("n", "t", 0, offset) for offset in offsets]
    assert sorted(keys, key=str.encode) == keys


def test_segment_and_index_keys_lead_to_each_other() -> None:
    for segment, index in (
        (object_keys.segment_key("n", "t.kfs", 0, 5), object_keys.index_key("n", "t.kfs", 0, 5)),
        (object_keys.merged_segment_key("n", "t", 0, 5, 9), object_keys.merged_index_key("n", "t", 0, 5, 9)),
    ):
        assert object_keys.index_key_of(segment) == index
        assert object_keys.segment_key_of(index) == segment
        with pytest.raises(ValueError, match="not the key of a segment"):
            object_keys.index_key_of(index)
        with pytest.raises(ValueError, match="not the key of an index"):
            object_keys.segment_key_of(segment)


@pytest.mark.parametrize(
    "parsed",
    [
        SegmentKey(namespace="default", topic="orders", partition=0, base_offset=0, last_offset=None),
        SegmentKey(
            namespace="n.-_1", topic="_t.-", partition=2**31 - 1, base_offset=MAX_OFFSET, last_offset=None
        ),
        SegmentKey(namespace="n", topic="t", partition=3, base_offset=5, last_offset=5),
        SegmentKey(namespace="n", topic="t", partition=3, base_offset=0, last_offset=MAX_OFFSET),
        SegmentKey(
            namespace="n",
            topic="t-0-1",
            partition=3,
            base_offset=5,
            last_offset=9,
            compaction=Compaction(MAX_OFFSET, 2**31 - 1, "aZ09"),
        ),
        SegmentKey(
            namespace="n",
            topic="t",
            partition=0,
            base_offset=0,
            last_offset=0,
            compaction=Compaction(0, 0, "a"),
        ),
    ],
)
def test_parsing_a_segment_key_undoes_building_it(parsed: SegmentKey) -> None:
    place = (parsed.namespace, parsed.topic, parsed.partition, parsed.base_offset)
    if parsed.last_offset is None:
        segment, index = object_keys.segment_key(*place), object_keys.index_key(*place)
    elif parsed.compaction is not None:
        segment = object_keys.compacted_segment_key(*place, parsed.last_offset, parsed.compaction)
        index = object_keys.index_key_of(segment)
    else:
        segment = object_keys.merged_segment_key(*place, parsed.last_offset)
        index = object_keys.merged_index_key(*place, parsed.last_offset)
    assert object_keys.parse_segment_key(segment) == parsed
    assert object_keys.parse_index_key(index) == parsed
    assert object_keys.parse_segment_key(index) is None
    assert object_keys.parse_index_key(segment) is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "n/t/0/",
        "n/t/0/segment-0.kfs",
        "n/t/0/segment-00000000000000000040.KFS",
        "n/t/0/segment-00000000000000000040.kfs.bak",
        "n/t/0/segment-00000000000000000040.kfs\n",
        "n/t/0/segment-0000000000000000004\u0660.kfs",
        "n/t/0/segment-00000000000000000040",
        "n/t/00/segment-00000000000000000040.kfs",
        "n/t/-1/segment-00000000000000000040.kfs",
        "n/t/2147483648/segment-00000000000000000040.kfs",
        "n/t/0/segment-09223372036854775808.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000039.kfs",
        "n/t/0/segment-00000000000000000040-09223372036854775808.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000049-00000000000000000050.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000049-00000000000000000050-1.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000049-00000000000000000050-01-a.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000049-00000000000000000050-1-a-b.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000049-00000000000000000050-2147483648-a.kfs",
        "n/t/0/segment-00000000000000000040-00000000000000000049-09223372036854775808-1-a.kfs",
        "n/a/t/0/segment-00000000000000000040.kfs",
        "n/../0/segment-00000000000000000040.kfs",
        "n/t ü/0/segment-00000000000000000040.kfs",
        "_kafscale/t/0/segment-00000000000000000040.kfs",
        ".tmp/t/0/segment-00000000000000000040.kfs",
        "/t/0/segment-00000000000000000040.kfs",
    ],
)
def test_a_key_that_is_no_segments_is_recognised(key: str) -> None:
    assert object_keys.parse_segment_key(key) is None


def test_parsing_a_checkpoint_key_undoes_building_it() -> None:
    key = object_keys.checkpoint_key("n", "t", 12, MAX_OFFSET, 2**31 - 1, "0aZ9")
    assert object_keys.parse_checkpoint_key(key) == CheckpointKey(
        namespace="n",
        topic="t",
        partition=12,
        log_end_offset=MAX_OFFSET,
        leader_epoch=2**31 - 1,
        token="0aZ9",
    )


@pytest.mark.parametrize(
    "key",
    [
        "n/checkpoints/t/0/00000000000000000040-5-a.ckpt",
        "_kafscale/n/checkpoints/t/0/40-5-a.ckpt",
        "_kafscale/n/checkpoints/t/0/00000000000000000040-5.ckpt",
        "_kafscale/n/checkpoints/t/0/00000000000000000040-05-a.ckpt",
        "_kafscale/n/checkpoints/t/0/00000000000000000040-2147483648-a.ckpt",
        "_kafscale/n/checkpoints/t/0/09223372036854775808-5-a.ckpt",
        "_kafscale/n/checkpoints/../0/00000000000000000040-5-a.ckpt",
        "_kafscale/_n/checkpoints/t/0/00000000000000000040-5-a.ckpt",
    ],
)
def test_a_key_that_is_no_checkpoints_is_recognised(key: str) -> None:
    assert object_keys.parse_checkpoint_key(key) is None


@pytest.mark.parametrize("token", ["", "a-b", "a/b", "ü", "../x"])
def test_a_checkpoints_token_is_letters_and_digits(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        object_keys.checkpoint_key("n", "t", 0, 0, 0, token)


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "...", "_", "-", "x" * 249])
def test_kafkas_topic_names_are_legal(name: str) -> None:
    assert object_keys.topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "x" * 250,
            f"Topic name is invalid: the length of '{'x' * 100}... (250 characters)' is longer than the max "
            "allowed length 249",
        ),
        (
            "a/b",
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
    ],
)
def test_a_bad_topic_name_is_refused_in_kafkas_words(name: str, problem: str) -> None:
    assert object_keys.topic_name_problem(name) == problem


@pytest.mark.parametrize("name", ["a b", "ü", "a\n", "a\0", "٣", "a,b", "a:b"])
def test_topic_name_is_ascii_letters_digits_and_three_signs(name: str) -> None:
    assert object_keys.topic_name_problem(name) is not None


@pytest.mark.parametrize("namespace", ["default", "9", "a_b.c-d", "-", "x" * 249])
def test_namespaces_like_topic_names_are_legal(namespace: str) -> None:
    assert object_keys.namespace_problem(namespace) is None


@pytest.mark.parametrize("namespace", ["", "_kafscale", "_x", ".tmp", "..", "a/b", "a\n", "x" * 250])
def test_a_namespace_never_meets_what_the_system_keeps(namespace: str) -> None:
    problem = object_keys.namespace_problem(namespace)
    assert problem is not None
    assert repr(namespace) in problem


def test_a_probe_has_keys_of_its_own_below_its_prefix() -> None:
    assert object_keys.probe_key("ns", "t0k3n", 2) == "_kafscale/ns/probe-t0k3n/2"
    assert object_keys.probe_key("ns", "t0k3n", 2).startswith(object_keys.probe_prefix("ns", "t0k3n"))
    with pytest.raises(ValueError, match="probe token 'a/b'"):
        object_keys.probe_key("ns", "a/b", 0)


def test_a_compactions_token_is_letters_and_digits() -> None:
    with pytest.raises(ValueError, match="letters and digits"):
        object_keys.compacted_segment_key("n", "t", 0, 0, 9, Compaction(10, 1, "a-b"))
