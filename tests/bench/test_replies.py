"""Frames are counted by their lengths, however they come in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from bench.replies import FrameCounter


@given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=20),
    cuts=st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=20),
)
def test_every_frame_is_counted_once_when_its_last_byte_comes(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    ends = []
    end = 0
    for body in bodies:
        end += 4 + len(body)
        ends.append(end)
    counter = FrameCounter()
    at = counted = step = 0
    while at < len(stream):
        piece = stream[at : at + cuts[step % len(cuts)]]
        counted += counter.count(memoryview(piece))
        at += len(piece)
        step += 1
        # A body of no bytes ends with its length.
        assert counted == sum(1 for end in ends if end <= at)
    assert counter.last_bytes == 4 + len(bodies[-1])
