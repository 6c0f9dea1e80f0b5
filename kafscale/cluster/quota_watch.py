"""The quotas of the view apply to this broker's clients."""

from kafscale.cluster.view import ClusterView
from kafscale.formats.quota_record import decode_quota_key
from kafscale.security.client_quotas import ClientQuotas


def apply_quotas(view: ClusterView, quotas: ClientQuotas) -> None:
    """Set each entity's quotas at each change from now on."""

    def changed(key: str) -> None:
        record = view.quotas.get(key)
        if record is None:
            quotas.set(decode_quota_key(key), {})
        else:
            quotas.set(*record)

    view.quotas.subscribe(changed)
