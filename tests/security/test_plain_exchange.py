"""PLAIN: its message, its check off the loop, and the turns of those who wait for it."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.user_record import ScramMechanism
from kafscale.security.password_checks import MAX_WAITING_OF_ADDRESS, THREADS, PasswordChecks
from kafscale.security.plain_exchange import WRONG_PASSWORD, PlainExchange, PlainLogin, parse_plain
from kafscale.security.sasl import Authenticated, AuthenticationError, BusyError
from kafscale.security.scram import Decoys, credential_of

CREDENTIALS = {one: credential_of(one, b"pencil", b"some salt", 4096) for one in ScramMechanism}


def exchange(checks: PasswordChecks, *mechanisms: ScramMechanism) -> PlainExchange:
    known = {one: CREDENTIALS[one] for one in mechanisms or ScramMechanism}
    return PlainExchange(lambda name: known if name == "user" else {}, Decoys(b"s"), checks, "192.0.2.1")


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
async def test_password_is_checked_by_either_credential(mechanism: ScramMechanism) -> None:
    checks = PasswordChecks()
    assert await exchange(checks, mechanism).respond(b"\0user\0pencil") == Authenticated(b"", "user")
    with pytest.raises(AuthenticationError, match="wrong password"):
        await exchange(checks, mechanism).respond(b"\0user\0pencil2")
    checks.close()


async def test_unknown_user_costs_a_check_and_has_the_same_answer() -> None:
    class Counting(PasswordChecks):
        count = 0

        async def run(self, address, work):  # type: ignore[no-untyped-def]
            self.count += 1
            return await super().run(address, work)

    checks = Counting()
    for name in (b"user", b"nobody"):
        with pytest.raises(AuthenticationError) as raised:
            await exchange(checks).respond(b"\0" + name + b"\0wrong")
        assert raised.value.answer == WRONG_PASSWORD
    assert checks.count == 2
    checks.close()


def test_password_is_in_no_text_of_a_login() -> None:
    assert "pencil" not in repr(PlainLogin("user", b"pencil"))


@pytest.mark.parametrize(
    "token",
    [b"", b"\0", b"\0\0", b"user\0pencil", b"\0user\0", b"\0\0pencil", b"other\0user\0pencil",
     b"\0user\0a\0b", b"\0\xff\0pencil", b"\0user\0\xff", b"\0" + b"x" * 1025 + b"\0pencil"],
)  # fmt: skip
def test_malformed_message_is_refused(token: bytes) -> None:
    with pytest.raises(AuthenticationError) as raised:
        parse_plain(token)
    assert "pencil" not in raised.value.reason


@given(st.binary(max_size=100))
def test_nonsense_is_refused_or_a_login(token: bytes) -> None:
    try:
        login = parse_plain(token)
    except AuthenticationError:
        return
    assert login.name
    assert token.endswith(b"\0" + login.name.encode() + b"\0" + login.password)


class Gate:
    """Work that holds its thread until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def work(self) -> str:
        self.opened.wait(30)
        return "done"


async def fill(checks: PasswordChecks, gate: Gate, address: str, count: int) -> list["asyncio.Task[str]"]:
    tasks = [asyncio.create_task(checks.run(address, gate.work)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_addresses_take_turns() -> None:
    checks, gate = PasswordChecks(), Gate()
    order: list[str] = []
    flood = await fill(checks, gate, "flood", THREADS)

    async def run(address: str) -> None:
        await checks.run(address, lambda: None)
        order.append(address)

    waiting = [asyncio.create_task(run("flood")) for _ in range(20)]
    await asyncio.sleep(0)
    other = asyncio.create_task(run("other"))
    await asyncio.sleep(0)
    assert checks.waiting_count == 21
    gate.opened.set()
    await asyncio.gather(*flood, *waiting, other)
    assert order.index("other") <= THREADS + 1
    assert checks.waiting_count == 0
    checks.close()


async def test_too_many_of_an_address_are_refused_and_others_wait() -> None:
    checks, gate = PasswordChecks(), Gate()
    running = await fill(checks, gate, "flood", THREADS + MAX_WAITING_OF_ADDRESS)
    with pytest.raises(BusyError):
        await checks.run("flood", gate.work)
    other = await fill(checks, gate, "other", 1)
    gate.opened.set()
    assert set(await asyncio.gather(*running, *other)) == {"done"}
    checks.close()


async def test_cancelled_logins_leave_every_thread_free() -> None:
    checks, gate = PasswordChecks(), Gate()
    running = await fill(checks, gate, "a", THREADS)
    waiting = await fill(checks, gate, "b", 5)
    for task in [*waiting, *running]:
        task.cancel()
    await asyncio.gather(*waiting, *running, return_exceptions=True)
    gate.opened.set()
    done = await asyncio.gather(*(checks.run("c", lambda: 1) for _ in range(10)))
    assert done == [1] * 10
    checks.close()


async def test_failure_of_the_work_is_raised() -> None:
    checks = PasswordChecks()
    with pytest.raises(ZeroDivisionError):
        await checks.run("a", lambda: 1 // 0)
    assert await checks.run("a", lambda: 2) == 2
    checks.close()
