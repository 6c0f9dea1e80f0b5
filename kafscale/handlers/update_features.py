"""UpdateFeatures (57), versions 0 to 2: finalizes feature levels (KIP-584).

v1: validate-only and upgrade types in the place of allow-downgrade (KIP-778). v2: no results of single features,
which are all or none anyway (KIP-1022). Every broker serves it.
"""

from typing import TYPE_CHECKING, Final

from kafscale.cluster.feature_updates import FeatureUpdate, UpgradeType
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MAX_UPDATES: Final = 100
"""Features that one request may name: each is read from the metadata store. A cluster has three."""

_FIRST_VERSION_WITH_UPGRADE_TYPE: Final = 1
_LAST_VERSION_WITH_RESULTS: Final = 1


async def handle(
    broker: "Broker", request: "RequestContext", message: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Finalize all levels, or with validate-only check whether they could be; one refusal refuses all."""
    has_type = request.api_version >= _FIRST_VERSION_WITH_UPGRADE_TYPE
    try:
        check_access(request, Operation.ALTER)
        if len(message.feature_updates) > MAX_UPDATES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {MAX_UPDATES} features in one request.")
        validate_only = bool(has_type and message.validate_only)
        await broker.features.update(
            [_update(update, has_type) for update in message.feature_updates],
            timeout_ms=message.timeout_ms,
            validate_only=validate_only,
        )
    except KafkaError as refusal:
        return UpdateFeaturesResponse(
            error_code=refusal.code, error_message=refusal.message or None, results=[]
        )
    if not validate_only:
        done = [f"{update.feature}={update.max_version_level}" for update in message.feature_updates]
        changed(request.access.principal, request.client_host, "features updated", done)
    updated = message.feature_updates if request.api_version <= _LAST_VERSION_WITH_RESULTS else ()
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=update.feature, error_code=ErrorCode.NONE, error_message=None
            )
            for update in updated
        ],
    )


def _update(update: UpdateFeaturesRequest.FeatureUpdateKey, has_type: bool) -> FeatureUpdate:
    if has_type:
        upgrade_type = update.upgrade_type
    else:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(feature=update.feature, level=update.max_version_level, upgrade_type=upgrade_type)
