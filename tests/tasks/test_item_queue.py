"""A queue of items for one background task: in order, past items that fail, and no longer than it is wanted."""

import asyncio

from kafscale.tasks.item_queue import ItemQueue


class Worker:
    """Takes what it worked on down. `failing`: the items that it cannot do."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.done: list[int] = []
        self.failed: list[int] = []
        self.begun = 0
        self.queue: ItemQueue[int] = ItemQueue("test queue", self.work, self.report, self.before)

    async def before(self) -> None:
        self.begun += 1

    async def work(self, item: int) -> None:
        await asyncio.sleep(0)
        if item in self.failing:
            raise ValueError("a defect")
        self.done.append(item)

    def report(self, item: int, problem: Exception) -> None:
        self.failed.append(item)


def is_running() -> bool:
    return "test queue" in {task.get_name() for task in asyncio.all_tasks()}


async def test_items_are_worked_on_in_their_order() -> None:
    worker = Worker()
    worker.queue.add([1, 2])
    worker.queue.add([3])
    await worker.queue.settled()
    assert (worker.done, worker.begun) == ([1, 2, 3], 1)


async def test_item_that_fails_is_reported_and_the_next_one_done() -> None:
    worker = Worker(2)
    worker.queue.add([1, 2, 3])
    await worker.queue.settled()
    assert (worker.done, worker.failed) == ([1, 3], [2])


async def test_empty_queue_has_no_task_and_begins_again() -> None:
    worker = Worker()
    worker.queue.add([])
    assert not is_running()
    worker.queue.add([1])
    await worker.queue.settled()
    worker.queue.add([2])
    await worker.queue.settled()
    assert (worker.done, worker.begun) == ([1, 2], 2)
    await asyncio.sleep(0)
    assert not is_running()


async def test_close_ends_the_work() -> None:
    worker = Worker()
    worker.queue.add(range(1000))
    await asyncio.sleep(0)
    await worker.queue.close()
    assert not is_running()
    assert len(worker.done) < 1000
