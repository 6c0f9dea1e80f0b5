"""OAUTHBEARER: which tokens name a user, what is learnt from those that do not, and keys that are rotated."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.security.jwks import KeySetError, KeySetSource, parse_key_set, read_bytes
from kafscale.security.oauth_exchange import MAX_TOKEN_CHARACTERS, OAuthExchange, parse_message
from kafscale.security.oauth_rules import TokenError, TokenRules, check_claims
from kafscale.security.oauth_tokens import SignatureVerifier, signed_claims
from kafscale.security.sasl import Authenticated, AuthenticationError, Challenge
from tests.support.in_process_broker import until
from tests.support.token_issuer import AUDIENCE, ISSUER, TokenIssuer, client_message, token_issuer

REFUSED = Challenge(b'{"status":"invalid_token"}')
NOW_SEC = 1_700_000_000
OURS = TokenRules(audience=(AUDIENCE,), issuer=ISSUER)
CLAIMS = {"sub": "alice", "iat": NOW_SEC, "exp": NOW_SEC + 60}


@pytest.fixture(scope="module")
def keys() -> TokenIssuer:
    issuer = TokenIssuer()
    issuer.add_key("one")
    issuer.add_key("rsa", "RSA")
    return issuer


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer("one") as issuer:
        yield issuer


class Clock:
    now_sec = 0.0

    def __call__(self) -> float:
        return self.now_sec


def now_ms() -> int:
    return int(time.time() * 1000)


def source_of(issuer: TokenIssuer, clock: Clock | None = None) -> KeySetSource:
    return KeySetSource(issuer.url, 3600, clock or Clock())


def encoded(part: object) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def accepted(issuer: TokenIssuer, token: str, rules: TokenRules = OURS) -> str:
    claims = signed_claims(token, parse_key_set(issuer.published()))
    return check_claims(claims, rules, int(time.time())).name


# --- claims


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({}, {}),
        ({"exp": NOW_SEC - 29}, {}),
        ({"iat": NOW_SEC + 30}, {}),
        ({"aud": ["x", "kafka"]}, {"audience": ("kafka", "y")}),
        ({"aud": "kafka"}, {"audience": ("kafka",)}),
        ({"iss": "me"}, {"issuer": "me"}),
        ({"scope": ["a", "b"]}, {}),
        ({"sub": 5, "name": " alice "}, {"sub_claim": "name"}),
        ({"exp": NOW_SEC + 60.5}, {}),
    ],
)
def test_claims_that_fit_name_the_user(claims: dict[str, Any], rules: dict[str, Any]) -> None:
    assert check_claims({**CLAIMS, **claims}, TokenRules(**rules), NOW_SEC).name == "alice"


@pytest.mark.parametrize(
    ("claims", "rules", "text"),
    [
        ({"sub": None}, {}, "sub"),
        ({"sub": "  "}, {}, "sub"),
        ({"sub": ["alice"]}, {}, "sub"),
        ({"sub": "x" * 1025}, {}, "sub"),
        ({}, {"sub_claim": "name"}, "name"),
        ({"exp": None}, {}, "exp"),
        ({"exp": "soon"}, {}, "exp"),
        ({"exp": True}, {}, "exp"),
        ({"exp": float("inf")}, {}, "exp"),
        ({"exp": float("nan")}, {}, "exp"),
        ({"exp": NOW_SEC - 30}, {}, "expired"),
        ({"iat": NOW_SEC + 31}, {}, "iat"),
        ({"nbf": NOW_SEC + 31}, {}, "nbf"),
        ({"iat": "x"}, {}, "iat"),
        ({"iat": None}, {}, "iat"),
        ({"aud": "kafka"}, {}, "audience"),
        ({"aud": ["kafka"]}, {}, "audience"),
        ({"aud": []}, {}, "audience"),
        ({"aud": "other"}, {"audience": ("kafka",)}, "audience"),
        ({"aud": {"kafka": 1}}, {"audience": ("kafka",)}, "audience"),
        ({}, {"audience": ("kafka",)}, "audience"),
        ({"iss": "other"}, {"issuer": "me"}, "issuer"),
        ({}, {"issuer": "me"}, "issuer"),
        ({"scope": 5}, {}, "scope"),
        ({"scp": [1]}, {"scope_claim": "scp"}, "scp"),
    ],
)
def test_claim_that_does_not_fit_is_named(claims: dict[str, Any], rules: dict[str, Any], text: str) -> None:
    with pytest.raises(TokenError, match=text):
        check_claims({**CLAIMS, **claims}, TokenRules(**rules), NOW_SEC)


# --- signatures


@pytest.mark.parametrize("key_id", ["one", "rsa"])
def test_signed_token_names_its_user(keys: TokenIssuer, key_id: str) -> None:
    assert accepted(keys, keys.token(key_id)) == "alice"


def forgeries(issuer: TokenIssuer) -> dict[str, str]:
    good = issuer.token("rsa")
    head, payload, signature = good.split(".")
    public = issuer.key("rsa").as_pem(private=False)
    shared = encoded({"alg": "HS256", "kid": "rsa"}) + "." + payload
    stranger = TokenIssuer()
    stranger.add_key("one")
    return {
        "none": encoded({"alg": "none", "kid": "rsa"}) + f".{payload}.",
        "None": encoded({"alg": "None", "kid": "rsa"}) + f".{payload}.{signature}",
        "public key as secret": f"{shared}.{encoded(hmac.digest(public, shared.encode(), hashlib.sha256))}",
        "another user": f"{head}.{encoded({**CLAIMS, 'sub': 'admin'})}.{signature}",
        "no signature": f"{head}.{payload}.",
        "another's key": stranger.token("one"),
        "own key in the header": stranger.token(
            "one", header={"jwk": stranger.key("one").as_dict(private=False)}
        ),
        "key of another type": encoded({"alg": "ES256", "kid": "rsa"}) + f".{payload}.{signature}",
        "nothing": "",
        "dots": "...",
        "deep header": encoded(b"[" * 100_000) + f".{payload}.{signature}",
        "list header": encoded([1]) + f".{payload}.{signature}",
        "list algorithm": encoded({"alg": ["RS256"], "kid": "rsa"}) + f".{payload}.{signature}",
        "critical": encoded({"alg": "RS256", "kid": "rsa", "crit": ["x"], "x": 1})
        + f".{payload}.{signature}",
        "unknown key": encoded({"alg": "RS256", "kid": "two"}) + f".{payload}.{signature}",
        "number as key id": encoded({"alg": "RS256", "kid": 7}) + f".{payload}.{signature}",
        "encrypted": ".".join("abcde"),
    }


def test_forged_token_is_refused(keys: TokenIssuer) -> None:
    for what, token in forgeries(keys).items():
        with pytest.raises(TokenError) as raised:
            accepted(keys, token)
        assert not token or token not in str(raised.value), what


def test_token_without_a_key_id_needs_an_only_key() -> None:
    issuer = TokenIssuer()
    issuer.add_key("one")
    issuer.add_key("rsa", "RSA")
    token = issuer.token("one", header={"kid": None})
    assert accepted(issuer, token) == "alice"
    issuer.add_key("two")
    with pytest.raises(TokenError, match="which key"):
        accepted(issuer, token)


@given(st.text(max_size=80))
def test_nonsense_is_no_token(keys: TokenIssuer, token: str) -> None:
    with pytest.raises(TokenError):
        accepted(keys, token)


@given(st.data())
def test_changed_token_is_refused(keys: TokenIssuer, data: st.DataObject) -> None:
    token = keys.token("one")
    position = data.draw(st.integers(0, len(token) - 3))  # the last bits of a signature's base64 mean nothing
    letter = data.draw(st.sampled_from("ABCxyz0189-_."))
    changed = token[:position] + letter + token[position + 1 :]
    if changed != token:
        with pytest.raises(TokenError):
            accepted(keys, changed)


# --- the client's message


def test_message_has_the_token_and_the_authorization_id() -> None:
    message = parse_message(client_message("abc.def.ghi", "al=2Cice", "traceId=5\x01"))
    assert (message.token, message.authorization_id) == ("abc.def.ghi", "al,ice")
    assert "abc.def.ghi" not in repr(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer abc\x01\x01",
        b"p,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        client_message("a" * (MAX_TOKEN_CHARACTERS + 1)),
    ],
)
def test_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        parse_message(message)


@given(st.binary(max_size=200))
def test_nonsense_is_no_message(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        parse_message(message)


# --- exchanges and keys


async def exchange_of(issuer: TokenIssuer, source: KeySetSource | None = None) -> OAuthExchange:
    source = source or source_of(issuer)
    await source.read_again()
    return OAuthExchange(SignatureVerifier(OURS, source, now_ms))


async def test_good_token_ends_the_exchange(issuer: TokenIssuer) -> None:
    exchange = await exchange_of(issuer)
    step = await exchange.respond(client_message(issuer.token("one", life_sec=100), "alice"))
    assert isinstance(step, Authenticated)
    assert (step.token, step.name) == (b"", "alice")
    assert step.expires_ms is not None
    assert abs(step.expires_ms - now_ms() - 100_000) < 5_000


async def test_refusal_is_a_status_and_the_client_ends_it(issuer: TokenIssuer) -> None:
    exchange = await exchange_of(issuer)
    assert await exchange.respond(client_message(issuer.token("one", life_sec=-100))) == REFUSED
    with pytest.raises(AuthenticationError, match="expired") as raised:
        await exchange.respond(b"\x01")
    assert raised.value.answer == '{"status":"invalid_token"}'


async def test_second_message_does_not_save_a_refused_one(issuer: TokenIssuer) -> None:
    exchange = await exchange_of(issuer)
    assert await exchange.respond(client_message("nonsense")) == REFUSED
    with pytest.raises(AuthenticationError):
        await exchange.respond(client_message(issuer.token("one")))


async def test_another_authorization_id_is_refused(issuer: TokenIssuer) -> None:
    with pytest.raises(AuthenticationError, match="authorization id"):
        await (await exchange_of(issuer)).respond(client_message(issuer.token("one"), "bob"))


async def test_rotated_key_is_read_for_its_first_token(issuer: TokenIssuer) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    await exchange_of(issuer, source)
    issuer.add_key("two")
    clock.now_sec = 100
    exchange = await exchange_of(issuer, source)
    assert isinstance(await exchange.respond(client_message(issuer.token("two"))), Authenticated)


async def test_unknown_keys_do_not_make_the_issuer_busy(issuer: TokenIssuer) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    stranger = TokenIssuer()
    for index in range(20):
        stranger.add_key(f"unknown-{index}")
        exchange = OAuthExchange(SignatureVerifier(OURS, source, now_ms))
        assert await exchange.respond(client_message(stranger.token(f"unknown-{index}"))) == REFUSED
    assert issuer.requests == 1
    clock.now_sec = 10
    exchange = OAuthExchange(SignatureVerifier(OURS, source, now_ms))
    assert await exchange.respond(client_message(stranger.token("unknown-1"))) == REFUSED
    assert issuer.requests == 2


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AA"}]}', b"x" * 2**21]
)
async def test_last_good_keys_stay(issuer: TokenIssuer, answer: bytes) -> None:
    clock = Clock()
    source = source_of(issuer, clock)
    assert await source.read_again()
    issuer.answer, clock.now_sec = answer, 100
    assert not await source.read_again()
    exchange = OAuthExchange(SignatureVerifier(OURS, source, now_ms))
    assert isinstance(await exchange.respond(client_message(issuer.token("one"))), Authenticated)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x15\x03\x03\x00\x02\x02\x50\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
    ],
    ids=["nothing", "tls", "headers", "cut off", "no size"],
)
async def test_answer_that_is_no_http_keeps_the_keys(issuer: TokenIssuer, raw: bytes) -> None:
    source = KeySetSource(issuer.url, 0.01, Clock())
    running = asyncio.create_task(source.run())
    await until(lambda: source.keys is not None, "the keys are read")
    issuer.raw, before = raw, issuer.requests
    await until(lambda: issuer.requests > before + 1 or running.done(), "the keys are read again")
    assert not running.done()
    assert source.keys is not None
    running.cancel()
    await source.close()


async def test_token_before_any_keys_is_refused() -> None:
    source = KeySetSource("http://127.0.0.1:1/keys", 3600, Clock())
    issuer = TokenIssuer()
    issuer.add_key("one")
    exchange = OAuthExchange(SignatureVerifier(OURS, source, now_ms))
    assert await exchange.respond(client_message(issuer.token("one"))) == REFUSED


def test_keys_are_read_from_a_file(keys: TokenIssuer, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(keys.published())
    assert len(parse_key_set(read_bytes(path.as_uri())).keys) == 2
    with pytest.raises(KeySetError, match="cannot be read"):
        read_bytes((tmp_path / "absent").as_uri())


def test_shared_and_private_keys_are_not_kept(keys: TokenIssuer) -> None:
    private = keys.key("rsa").as_dict(private=True)
    listed = {"keys": [{"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA"}, 5, private]}
    found = parse_key_set(json.dumps(listed).encode()).keys
    assert [key.kid for key in found] == ["rsa"]
    assert not found[0].is_private


@given(st.binary(max_size=100))
def test_nonsense_is_no_key_set(data: bytes) -> None:
    with pytest.raises(KeySetError):
        parse_key_set(data)
