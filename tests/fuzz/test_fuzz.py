"""A short run of the fuzzer, and that it is one: it reaches every API, and tells what it would have to tell."""

import itertools
import random
from pathlib import Path

from kafscale.handlers.routes import ROUTES, ROUTES_BY_KEY
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.header import parse_request_header
from tests.fuzz.mutations import Mutations
from tests.fuzz.run import NEVER, SELDOM, Plan, fuzz, mutated_frames
from tests.fuzz.tally import Fate, Tally, decode, has_no_reply
from tests.fuzz.valid_frames import ValidFrames, golden_payloads
from tests.support import wire

FRAMES = 4_000
SEED = 15


def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    outcome = fuzz(Plan(frames=FRAMES, seed=SEED), tmp_path)
    tally = outcome.tally
    print(*tally.table(), sep="\n")
    assert tally.frames == FRAMES
    assert tally.looked_at >= FRAMES // 2
    assert sum(counts[Fate.ANSWERED] for counts in tally.counts.values()) >= FRAMES // 5
    assert set(tally.counts) >= {route.api.api_name for route in ROUTES if route.api not in SELDOM | NEVER}
    assert not outcome.failures
    assert not [payload.hex() for payload in tally.unexplained]


def test_frames_made_by_schema_decode_in_every_version() -> None:
    valid = ValidFrames(random.Random(SEED))
    assert {key for key, _ in valid.kinds} == set(ROUTES_BY_KEY)
    for api_key, version in valid.kinds:
        for _ in range(20):
            payload = valid.payload(api_key, version)
            header = parse_request_header(memoryview(payload))
            assert (header.api_key, header.api_version) == (api_key, version)
            assert decode(payload) is not None


def test_the_same_seed_gives_the_same_frames() -> None:
    def frames(seed: int) -> list[bytes]:
        return list(itertools.islice(mutated_frames(Plan(frames=200, seed=seed)), 200))

    assert frames(1) == frames(1) != frames(2)


def test_damaged_frames_differ_and_keep_their_header_as_a_rule() -> None:
    mutations = Mutations(random.Random(SEED))
    payloads = golden_payloads()
    damaged = [mutations.damaged(payload, payloads[0]) for payload in payloads * 10]
    differing = sum(one != payload for one, payload in zip(damaged, payloads * 10, strict=True))
    same_header = sum(one[:8] == payload[:8] for one, payload in zip(damaged, payloads * 10, strict=True))
    assert differing > len(damaged) / 2
    assert same_header > len(damaged) * 0.9


def test_a_request_that_decodes_without_answer_is_reported() -> None:
    tally = Tally()
    payload = ValidFrames(random.Random(SEED)).payload(ApiKey.METADATA, 1)
    tally.closed_by(payload)
    tally.closed_by(payload[:-1])
    tally.closed_by(b"\x7f\xff" + payload[2:])
    assert tally.unexplained == [payload]
    assert tally.counts["Metadata"][Fate.BODY_REFUSED] == 2
    assert tally.counts["(none)"][Fate.HEADER_REFUSED] == 1


def test_only_a_produce_without_acks_has_no_reply() -> None:
    for acks, silent in ((0, True), (1, False), (-1, False)):
        request = wire.produce_request("t", {0: b""}, acks=acks)
        request.API_VERSION = 3
        request.with_header(correlation_id=1, client_id="c")
        assert has_no_reply(request.encode(framed=True, header=True)[4:]) is silent
    assert not has_no_reply(golden_payloads()[-1])
