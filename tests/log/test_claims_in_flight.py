"""Waiting for a claim whose outcome this broker is about to know."""

import asyncio

from kafscale.log.claims_in_flight import ClaimsInFlight
from tests.support.in_process_broker import until
from tests.support.virtual_time import run_virtually

ORDERS, PAID = ("orders", 0), ("paid", 0)


def test_a_claim_is_in_flight_until_its_outcome_is_known() -> None:
    claims = ClaimsInFlight()

    def in_flight() -> tuple[bool, bool, bool]:
        return claims.are_any, ORDERS in claims, PAID in claims

    assert in_flight() == (False, False, False)
    with claims.making([ORDERS, PAID]):
        assert in_flight() == (True, True, True)
        claims.end(ORDERS)
        assert in_flight() == (True, False, True)
    assert in_flight() == (False, False, False)


def test_a_waiter_goes_on_when_that_claim_ends_and_not_before() -> None:
    async def run() -> None:
        claims = ClaimsInFlight()
        await claims.ended(ORDERS)  # It is not being claimed: there is nothing to wait for.
        with claims.making([ORDERS, PAID]):
            waiting = {item: asyncio.create_task(claims.ended(item)) for item in (ORDERS, PAID)}
            await until(lambda: all(map(claims.is_waited_for, waiting)), "both are waited for")
            claims.end(ORDERS)
            await waiting[ORDERS]
            assert not waiting[PAID].done()
            assert not claims.is_waited_for(ORDERS)
        await waiting[PAID]

    run_virtually(run())
