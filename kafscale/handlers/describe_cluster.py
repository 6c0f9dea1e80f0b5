"""DescribeCluster (60), versions 0 and 1: the brokers and the controller (KIP-700).

v1: the client asks for brokers or controllers (KIP-919); there are only brokers.
"""

from typing import TYPE_CHECKING, Final

from kafscale.protocol.api_messages import DescribeClusterRequest, DescribeClusterResponse
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.authorized_operations import bits_of, cluster_operations
from kafscale.serving.placement import reachable

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(
    broker: "Broker", request: "RequestContext", message: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The live brokers, or an error for any other endpoint type."""
    if message.endpoint_type == _CONTROLLERS:
        return _failed(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if message.endpoint_type != _BROKERS:
        return _failed(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {message.endpoint_type}"
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=_BROKERS,
        cluster_id=broker.view.cluster_id,
        controller_id=broker.metadata_brokers.controller_id(),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=live.broker_id, host=endpoint.host, port=endpoint.port, rack=live.rack
            )
            for live, endpoint in reachable(broker.metadata_brokers.live(), request.listener)
        ],
        # kafka-python's own name and form of `cluster_authorized_operations`; None: not requested
        authorized_operations=bits_of(cluster_operations(request.access))
        if message.include_cluster_authorized_operations
        else None,
    )


def _failed(code: ErrorCode, problem: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=problem, cluster_id="", brokers=[])
