"""Old place of the service's client, which is in `physai.service` now; goes with the next version."""

from physai.sdk.base.lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    moved={
        "physai.service": [
            "AsyncRemoteSession",
            "RemoteSession",
            "RemoteVectorEnv",
            "ServiceClient",
            "ServiceError",
            "StepReply",
        ]
    },
)
