"""UpdateFeatures (57), versions 0 and 1: finalizes feature levels (KIP-584).

v1: validate-only and upgrade types (KIP-778). No feature is defined yet, so every update is refused the way
Kafka refuses one that no broker supports: for the whole request, with INVALID_UPDATE_VERSION.
"""

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import UpdateFeaturesResponse

from kafscale.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafscale.handlers.context import Broker, RequestContext


def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Refuse the first update, and with it all; a request without updates succeeds."""
    if not message.feature_updates:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=[])
    update = message.feature_updates[0]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=(
            "The update failed for all features since the following feature had an error: Invalid update "
            f"version {update.max_version_level} for feature {update.feature}. Broker "
            f"{broker.settings.broker_id} does not support this feature."
        ),
        results=[],
    )
