"""Uses the service of `physai sim serve`: sessions over a WebSocket, registry and jobs over HTTP."""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.sim.client.errors import ServiceError
    from physai.sim.client.service import ServiceClient
    from physai.sim.client.session import AsyncRemoteSession, RemoteSession, StepReply
    from physai.sim.client.vector_env import RemoteVectorEnv

__all__ = ["AsyncRemoteSession", "RemoteSession", "RemoteVectorEnv", "ServiceClient", "ServiceError", "StepReply"]

__getattr__ = lazy_exports(
    __name__,
    {
        "errors": ["ServiceError"],
        "service": ["ServiceClient"],
        "session": ["AsyncRemoteSession", "RemoteSession", "StepReply"],
        "vector_env": ["RemoteVectorEnv"],
    },
)
