"""The limit on what producers make the broker hold, and the line of those who wait for memory."""

from collections.abc import Callable

from kafscale.memory.memory_budget import MemoryBudget


class Line:
    """Waits in a budget's line, and notes who was served."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._callbacks: dict[str, Callable[[], None]] = {}
        self.served: list[str] = []

    def wait(self, name: str, size_bytes: int) -> None:
        self._callbacks[name] = lambda: self.served.append(name)
        self._budget.when_free(size_bytes, self._callbacks[name])

    def leave(self, name: str) -> None:
        self._budget.forget(self._callbacks[name])


def test_there_is_room_up_to_the_limit() -> None:
    budget = MemoryBudget(100)
    budget.charge(99)
    assert (budget.used_bytes, budget.has_room) == (99, True)
    budget.charge(1)
    assert (budget.used_bytes, budget.has_room) == (100, False)


def test_what_is_held_already_is_counted_beyond_the_limit() -> None:
    budget = MemoryBudget(100)
    budget.charge(250)
    assert (budget.used_bytes, budget.has_room) == (250, False)
    budget.release(250)
    assert (budget.used_bytes, budget.has_room) == (0, True)


def test_item_larger_than_the_limit_fits_alone() -> None:
    budget = MemoryBudget(100)
    line = Line(budget)
    budget.charge(1)
    line.wait("large", 500)
    assert line.served == []
    budget.release(1)
    assert (line.served, budget.used_bytes) == (["large"], 500)


def test_whole_requests_may_use_the_reserve_whatever_frames_hold() -> None:
    budget = MemoryBudget(100)
    line = Line(budget)
    budget.charge_frame(130)
    assert (budget.record_bytes, budget.has_room) == (0, True)
    budget.charge(25)
    assert (budget.record_bytes, budget.has_room) == (25, False)
    line.wait("small", 5)
    assert line.served == []
    budget.release(10)
    assert line.served == ["small"]
    budget.release_frame(130)
    assert (budget.used_bytes, budget.frame_bytes) == (20, 0)


def test_requests_leave_all_but_the_reserve_to_a_waiting_frame() -> None:
    budget = MemoryBudget(100)
    budget.charge(25)
    assert (budget.used_bytes, budget.has_room) == (25, True)
    budget.waiting_frames = 1
    assert (budget.used_bytes, budget.has_room) == (25, False)
    budget.release(1)
    assert (budget.used_bytes, budget.has_room) == (24, True)


def test_waiters_are_served_in_order_as_far_as_they_fit() -> None:
    budget = MemoryBudget(100)
    line = Line(budget)
    budget.charge(100)
    for name, size_bytes in (("a", 30), ("b", 30), ("c", 30)):
        line.wait(name, size_bytes)
    budget.release(70)
    assert line.served == ["a", "b"]
    assert budget.used_bytes == 90
    budget.release(30)
    assert line.served == ["a", "b", "c"]


def test_no_frame_overtakes_a_large_one_that_waits() -> None:
    budget = MemoryBudget(100)
    line = Line(budget)
    budget.charge(60)
    line.wait("large", 80)
    assert not budget.has_room
    line.wait("small", 10)
    budget.release(10)
    assert line.served == []
    budget.release(30)
    assert line.served == ["large"]
    budget.release(80)
    assert line.served == ["large", "small"]


def test_who_leaves_the_line_makes_room_for_the_next() -> None:
    budget = MemoryBudget(100)
    line = Line(budget)
    budget.charge(50)
    line.wait("large", 80)
    line.wait("small", 10)
    line.leave("large")
    assert line.served == ["small"]
    line.leave("small")  # served already: no error, and nothing is taken back
    assert budget.used_bytes == 60


def test_a_served_callback_that_releases_at_once_serves_the_next() -> None:
    budget = MemoryBudget(10)
    served = []
    budget.charge(10)

    def first() -> None:
        served.append("first")
        budget.release(10)

    budget.when_free(10, first)
    budget.when_free(10, lambda: served.append("second"))
    budget.release(10)
    assert served == ["first", "second"]
    assert budget.used_bytes == 10


def test_shortage_notifies_the_listener_that_frees_memory() -> None:
    budget = MemoryBudget(10)
    line = Line(budget)
    budget.charge(10)
    budget.subscribe_shortage(lambda: budget.release(10))
    line.wait("a", 5)
    assert line.served == ["a"]
