"""SCRAM by the RFC's example, beside another implementation, and with all that untrusted clients may send."""

from base64 import b64decode, b64encode
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient

from kafscale.formats.user_record import ScramCredential, ScramMechanism
from kafscale.security.sasl import Authenticated, AuthenticationError, Challenge
from kafscale.security.scram import Decoys, credential_of, is_password_of, new_salt
from kafscale.security.scram_exchange import ScramExchange

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
DECOYS = Decoys(b"secret of the cluster")
ITERATIONS = 4096
CREDENTIALS = {one: credential_of(one, b"pencil", b"some salt", ITERATIONS) for one in ScramMechanism}

# RFC 7677, section 3.
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_CREDENTIAL = credential_of(SHA_256, b"pencil", RFC_SALT, 4096)


def exchange(
    credential: ScramCredential | None = RFC_CREDENTIAL,
    mechanism: ScramMechanism = SHA_256,
    nonce: str = RFC_SERVER_NONCE,
    name: str = "user",
) -> ScramExchange:
    return ScramExchange(mechanism, lambda asked: credential if asked == name else None, DECOYS, nonce)


def run(server: ScramExchange, client: ScramClient) -> Authenticated:
    challenge = server.respond(client.first_message())
    assert isinstance(challenge, Challenge)
    client.process_server_first_message(challenge.token)
    done = server.respond(client.final_message())
    assert isinstance(done, Authenticated)
    client.process_server_final_message(done.token)
    return done


def test_messages_are_those_of_rfc_7677() -> None:
    server = exchange()
    assert server.respond(RFC_FIRST) == Challenge(RFC_ANSWER)
    assert server.respond(RFC_FINAL) == Authenticated(
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user"
    )


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_another_implementation_logs_in(mechanism: ScramMechanism) -> None:
    server = exchange(CREDENTIALS[mechanism], mechanism, "server-nonce")
    assert run(server, ScramClient("user", "pencil", mechanism.sasl_name)).name == "user"


@pytest.mark.parametrize("name", ["user", "nobody"])
def test_wrong_password_fails_in_the_second_step(name: str) -> None:
    server, client = exchange(), ScramClient(name, "wrong", "SCRAM-SHA-256")
    challenge = server.respond(client.first_message())
    assert isinstance(challenge, Challenge)
    client.process_server_first_message(challenge.token)
    with pytest.raises(AuthenticationError) as raised:
        server.respond(client.final_message())
    assert raised.value.answer is None


def test_unknown_user_has_the_same_salt_every_time() -> None:
    answers = {
        exchange(None, nonce=nonce).respond(b"n,,n=nobody,r=abc").token.partition(b",s=")[2]
        for nonce in ("one", "two")
    }
    assert len(answers) == 1
    salt = DECOYS.credential(SHA_256, "nobody").salt
    assert salt != DECOYS.credential(SHA_256, "another").salt
    assert salt != Decoys(b"another cluster").credential(SHA_256, "nobody").salt


def test_salts_of_unknown_users_look_like_those_of_users() -> None:
    def shapes(salts: list[bytes]) -> dict[tuple[int, bytes], float]:
        """How often each length has each first character."""
        counts = Counter((len(salt), salt[:1]) for salt in salts)
        return {shape: count / len(salts) for shape, count in counts.items()}

    count = 20_000
    real = shapes([new_salt() for _ in range(count)])
    decoys = shapes([DECOYS.credential(SHA_512, str(number)).salt for number in range(count)])
    for shape in real.keys() | decoys.keys():
        assert abs(real.get(shape, 0) - decoys.get(shape, 0)) < 0.02, shape
    # Java's BigInteger(130, random).toString(36): of 26 characters the first is a 1.
    assert abs(real[26, b"1"] - 0.41) < 0.02
    assert sum(share for (length, _), share in real.items() if length == 25) > 0.5


def test_decoy_is_the_credential_of_no_password() -> None:
    decoy = DECOYS.credential(SHA_256, "nobody")
    assert decoy.stored_key != DECOYS.credential(SHA_256, "nobody").stored_key
    assert not is_password_of(decoy, SHA_256, b"pencil")


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"n,,n=user,r=abc", "user"),
        (b"y,,n=user,r=abc", "user"),
        (b"n,a=user,n=user,r=abc", "user"),
        (b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        ("n,,n=Ⅸ é,r=abc".encode(), "Ⅸ é"),
        (b"n,,n=user,r=abc,x=extension,tokenauth=true".replace(b",tokenauth=true", b""), "user"),
    ],
)
def test_first_message_names_the_user(first: bytes, name: str) -> None:
    server = exchange(name=name)
    assert isinstance(server.respond(first), Challenge)
    assert server.name == name


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=a\x00c",
        b"n,,n=us=er,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,r=abc,n=user",
        b"\xff\xfe",
        b"n,,n=" + b"x" * 1025 + b",r=abc",
        b"n,,n=user,r=" + b"x" * 1025,
        b"n,,n=user,r=abc\n",
    ],
)
def test_malformed_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        exchange().respond(first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        RFC_FINAL.replace(b"c=biws", b"c=eSws"),  # the binding of y,,
        RFC_FINAL.replace(b"k0,p", b"k1,p"),
        RFC_FINAL.replace(b"p=d", b"p=e"),
        RFC_FINAL.replace(b"p=d", b"p=?"),
        RFC_FINAL.rpartition(b",")[0],
        RFC_FINAL.rpartition(b"p=")[0] + b"p=" + b64encode(bytes(31)),
        RFC_FINAL.rpartition(b"p=")[0] + b"p=" + b64encode(bytes(64)),
        RFC_FINAL.rpartition(b"p=")[0] + b"p=====",
        RFC_FINAL + b",x=after",
        RFC_FINAL + b"\n",
        RFC_FIRST,
    ],
)
def test_final_message_that_proves_nothing_is_refused(final: bytes) -> None:
    server = exchange()
    server.respond(RFC_FIRST)
    with pytest.raises(AuthenticationError):
        server.respond(final)


@given(st.binary(max_size=300))
def test_nonsense_is_refused_first(token: bytes) -> None:
    try:
        assert isinstance(exchange().respond(token), Challenge)
    except AuthenticationError as problem:
        assert problem.reason


@given(st.binary(max_size=300))
def test_nonsense_is_refused_last(token: bytes) -> None:
    server = exchange()
    server.respond(RFC_FIRST)
    with pytest.raises(AuthenticationError):
        server.respond(token)


@given(cut=st.integers(0, len(RFC_FINAL) - 1))
def test_truncated_message_is_refused(cut: int) -> None:
    server = exchange()
    server.respond(RFC_FIRST)
    with pytest.raises(AuthenticationError):
        server.respond(RFC_FINAL[:cut])


def test_long_message_takes_time_in_proportion() -> None:
    for token in (b"n,,n=" + b"=2C" * 20_000, b"n,,n=u,r=a" + b",x=y" * 15_000 + b",", b"," * 60_000):
        with pytest.raises(AuthenticationError):
            exchange().respond(token)
