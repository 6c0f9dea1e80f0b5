"""ApiVersions (18), versions 0 to 4: the APIs that are served, and their versions.

v1: throttle time. v3: flexible body under a v0 header, client software (KIP-511), features (KIP-584). v4: a
feature's range may start at 0, which clients of earlier versions must not see (KAFKA-17011). A
version that is not served is answered in v0 with UNSUPPORTED_VERSION and this API's own range, so that the
client can ask again (KIP-511).
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kafscale.formats.features import SUPPORTED
from kafscale.protocol.api_messages import ApiVersionsRequest, ApiVersionsResponse
from kafscale.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

# Kafka checks these, because brokers use them as metric tags.
_SOFTWARE_TEXT: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_VERSION_WITH_SOFTWARE: Final = 3
_FIRST_VERSION_WITH_LEVEL_0: Final = 4


class VersionRange(NamedTuple):
    """The versions over which an API is served."""

    api_key: int
    min_version: int
    max_version: int


def handle(
    ranges: Iterable[VersionRange], broker: "Broker", request: "RequestContext", message: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Answer with `ranges`, which the routes bind: they are the only place that names versions."""
    if request.api_version >= _FIRST_VERSION_WITH_SOFTWARE and not all(
        _SOFTWARE_TEXT.fullmatch(text)
        for text in (message.client_software_name, message.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if request.api_version >= _FIRST_VERSION_WITH_SOFTWARE:
        request.software.has_codecs = broker.decompression.has_codecs(message.client_software_name)
    finalized = broker.view.finalized_features()
    may_begin_at_0 = request.api_version >= _FIRST_VERSION_WITH_LEVEL_0
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_api_keys(ranges),
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=name,
                min_version=max(levels.min_level, 0 if may_begin_at_0 else 1),
                max_version=levels.max_level,
            )
            for name, levels in SUPPORTED.items()
        ],
        # The same at every broker, and it only grows, as Kafka's does, which is an offset of its metadata log.
        finalized_features_epoch=max((one.revision for one in finalized.values()), default=0),
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=one.level, min_version_level=one.level
            )
            for name, one in finalized.items()
        ],
    )


def unsupported_version_response(own_range: VersionRange) -> ApiVersionsResponse:
    """The answer, to be encoded as version 0, to an ApiVersions request of a version that is not served."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys([own_range]))


def _api_keys(ranges: Iterable[VersionRange]) -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=one.api_key, min_version=one.min_version, max_version=one.max_version
        )
        for one in sorted(ranges)
    ]
