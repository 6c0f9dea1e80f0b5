"""Who says how many brokers there are, over any course of events: the number never falls back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import Brokers, cluster_spec
from kafscale.operator.clusters.replicas import owners, plan_replicas

AUTOSCALER = "kube-controller-manager"


def brokers(replicas: int | None, low: int = 3) -> Brokers:
    number = (
        {"replicas": replicas}
        if replicas is not None
        else {"autoscaling": {"minReplicas": low, "maxReplicas": 99}}
    )
    spec = {"brokers": number, "s3": {"bucket": "records"}, "etcd": {"endpoints": ["http://etcd:2379"]}}
    return cluster_spec("c", "ns", spec).brokers


def live(replicas: int, *managers: str) -> dict[str, Any]:
    fields = [{"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}} for manager in managers]
    others = {"manager": api_names.FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:template": {}}}}
    return {"metadata": {"managedFields": [others, *fields]}, "spec": {"replicas": replicas}}


class Field:
    """One field under server-side apply: a value and its owners, as the API server keeps them."""

    def __init__(self, value: int, owner: str) -> None:
        self.value, self.owners = value, {owner}

    def apply(self, manager: str, value: int | None) -> None:
        if value is None:
            if self.owners == {manager}:
                self.value = 1  # nobody owns it: the default
            self.owners.discard(manager)
        else:
            self.owners = {manager} if value != self.value else self.owners | {manager}
            self.value = value

    def update(self, manager: str, value: int) -> None:
        """As an autoscaler does it, by the scale subresource."""
        if value != self.value:
            self.value, self.owners = value, {manager}

    def seen(self) -> dict[str, Any]:
        return live(self.value, *self.owners)


def one_pass(field: Field | None, wanted: Brokers) -> Field:
    plan = plan_replicas(wanted, None if field is None else field.seen())
    if field is None:
        assert plan.within is not None
        return Field(plan.within, api_names.FIELD_MANAGER)
    before = field.value
    field.apply(api_names.FIELD_MANAGER, plan.within)
    assert field.value == before, "who applies the rest never changes the number, not even for a moment"
    if plan.scale is not None:
        field.apply(api_names.SCALE_FIELD_MANAGER, plan.scale)
    return field


@given(
    st.integers(0, 9),
    st.lists(
        st.one_of(
            st.tuples(st.just("given"), st.integers(0, 9)),
            st.tuples(st.just("auto"), st.integers(1, 9)),
            st.tuples(st.just("scaled"), st.integers(1, 9)),
            st.just(("pass", 0)),
        ),
        max_size=20,
    ),
)
def test_the_number_is_always_one_that_was_requested(first: int, steps: list[tuple[str, int]]) -> None:
    wanted = brokers(first)
    field = one_pass(None, wanted)
    assert field.value == first
    for step, number in steps:
        before = field.value
        match step:
            case "given":
                wanted = brokers(number)
            case "auto":
                wanted = brokers(None, low=number)
            case "scaled":
                if (
                    wanted.replicas is None
                    and owners(field.seen()) - {api_names.FIELD_MANAGER}
                    and field.value
                ):
                    field.update(AUTOSCALER, number)
                    before = number
        for _ in range(3):
            one_pass(field, wanted)
            if wanted.replicas is None and before:
                assert field.value == before, "an autoscaler finds the number as it was"
        if wanted.replicas is not None:
            assert field.value == wanted.replicas
        assert api_names.FIELD_MANAGER not in field.owners, "who applies the rest owns the number no more"


def test_a_stateful_set_is_made_with_its_number() -> None:
    assert plan_replicas(brokers(5), None).within == 5
    assert plan_replicas(brokers(None, low=4), None).within == 4


def test_an_autoscaler_that_has_taken_over_is_left_alone() -> None:
    plan = plan_replicas(brokers(None), live(7, AUTOSCALER))
    assert (plan.within, plan.scale, plan.wanted) == (None, None, 7)


def test_what_stands_at_nothing_is_started_for_an_autoscaler() -> None:
    plan = plan_replicas(brokers(None, low=2), live(0, api_names.SCALE_FIELD_MANAGER))
    assert (plan.scale, plan.wanted) == (2, 2)


@pytest.mark.parametrize("manager", [AUTOSCALER, "kubectl", api_names.SCALE_FIELD_MANAGER])
def test_a_number_that_is_given_is_put_back(manager: str) -> None:
    plan = plan_replicas(brokers(3), live(8, manager))
    assert (plan.within, plan.scale, plan.wanted) == (None, 3, 3)
