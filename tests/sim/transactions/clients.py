"""The steps of clients: begin a transaction and send all of it, end it."""

from collections.abc import Iterator

from kafscale.transactions.events import ProducerIdAndEpoch
from tests.sim.transactions.coordinating import S, Step
from tests.sim.transactions.states import (
    GROUP,
    Add,
    Batch,
    Client,
    End,
    Produce,
    Request,
    Scope,
    State,
    replaced,
)


def steps(state: State, scope: Scope) -> Iterator[Step]:
    """The next steps of all clients. A client that takes none has died."""
    for index, client in enumerate(state.clients):
        if client.producer is None or client.must_init:
            continue
        if client.ending is not None:
            if client.ending.version == 1 and client.ending.coordinator != state.coordinator:
                yield _sends_end_again(state, index, client, client.ending)
            continue
        if client.transaction is None:
            if client.made < scope.transactions[index]:
                yield _begins(state, index, client, client.producer, scope)
            continue
        if client.is_adding:
            if state.record.transaction == client.transaction and state.record.value.state is S.ONGOING:
                yield _sends(state, index, client, client.producer, scope)
            continue
        if _is_acknowledged(state, client, scope):
            yield _sends_end(state, index, client, client.producer, True, scope)
        if scope.aborts:
            yield _sends_end(state, index, client, client.producer, False, scope)


def _begins(state: State, index: int, client: Client, producer: ProducerIdAndEpoch, scope: Scope) -> Step:
    """With the old protocol the client waits until its partitions are added."""
    transaction = sum(scope.transactions[:index]) + client.made
    after = client._replace(transaction=transaction, is_adding=True)
    if scope.versions[index] == 2:
        return _sends(state, index, after, producer, scope)
    clients = replaced(state.clients, index, after)
    flying = state.flying | {Add(producer, transaction)}
    return f"client {index} adds places to {transaction}", state._replace(clients=clients, flying=flying)


def _sends(state: State, index: int, client: Client, producer: ProducerIdAndEpoch, scope: Scope) -> Step:
    """Everything is sent at once, and arrives in any order."""
    assert client.transaction is not None
    sent: set[Request] = {
        Produce(
            place,
            Batch(producer, 0 if place == GROUP else client.sequences[place], client.transaction),
            scope.versions[index],
        )
        for place in scope.places
    }
    sequences = tuple(sequence + 1 for sequence in client.sequences)
    after = client._replace(is_adding=False, sequences=sequences)
    clients = replaced(state.clients, index, after)
    what = f"client {index} sends all of {client.transaction}"
    return what, state._replace(clients=clients, flying=state.flying | sent)


def is_stored(state: State, place: int, transaction: int) -> bool:
    """True if what the transaction has of the place would be acknowledged."""
    if place == GROUP:
        pending = state.group.pending
        return pending is not None and pending.transaction == transaction
    return any(
        isinstance(one, Batch) and one.transaction == transaction for one in state.partitions[place].log
    )


def _is_acknowledged(state: State, client: Client, scope: Scope) -> bool:
    assert client.transaction is not None
    return all(is_stored(state, place, client.transaction) for place in scope.places)


def _is_of(request: Request, transaction: int) -> bool:
    """True for what the coordinators would take for a part of the next transaction of the same epoch."""
    if isinstance(request, Produce):
        return request.place == GROUP and request.batch.transaction == transaction
    return request.transaction == transaction


def _sends_end(
    state: State, index: int, client: Client, producer: ProducerIdAndEpoch, is_commit: bool, scope: Scope
) -> Step:
    assert client.transaction is not None
    version = scope.versions[index]
    end = End(producer, is_commit, client.transaction, version, state.coordinator)
    # A client of the old protocol whose batches were not answered takes another epoch afterwards (KIP-360).
    must_init = version == 1 and not is_commit and not _is_acknowledged(state, client, scope)
    after = client._replace(ending=end, must_init=False)
    flying = state.flying
    if version == 1:
        # What was answered does not come late: offsets have no sequence, and the epoch stays the same.
        flying -= {one for one in flying if _is_of(one, client.transaction) and not isinstance(one, End)}
    if must_init:
        # It does not wait for the answer: InitProducerId aborts what is open.
        after = client._replace(must_init=True, transaction=None, made=client.made + 1)
        flying = state.flying
    else:
        flying |= {end}
    clients = replaced(state.clients, index, after)
    word = "commit" if is_commit else "abort"
    return f"client {index} sends {word} of {client.transaction}", state._replace(
        clients=clients, flying=flying
    )


def _sends_end_again(state: State, index: int, client: Client, before: End) -> Step:
    """To the next coordinator, whose answer alone is awaited."""
    end = before._replace(coordinator=state.coordinator)
    clients = replaced(state.clients, index, client._replace(ending=end))
    what = f"client {index} sends {before} to the next coordinator"
    return what, state._replace(clients=clients, flying=state.flying | {end})
