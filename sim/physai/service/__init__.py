"""The twin over HTTP: sessions, jobs, a registry and pages for a team.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.service.auth.token_admin import create_token as create_token
    from physai.service.auth.token_admin import list_tokens as list_tokens
    from physai.service.auth.token_admin import revoke_token as revoke_token
    from physai.service.client.errors import ServiceError as ServiceError
    from physai.service.client.remote_session import AsyncRemoteSession as AsyncRemoteSession
    from physai.service.client.remote_session import RemoteSession as RemoteSession
    from physai.service.client.remote_session import StepReply as StepReply
    from physai.service.client.remote_validation import validate as validate
    from physai.service.client.service import ServiceClient as ServiceClient
    from physai.service.client.unit_list import list_units as list_units
    from physai.service.client.vector_env import RemoteVectorEnv as RemoteVectorEnv
    from physai.service.serving.process import ServiceProcess as ServiceProcess
    from physai.service.serving.process import running_service as running_service
    from physai.service.serving.serve_data import serve as serve
    from physai.service.view.playing.browser import play_in_browser as play_in_browser
    from physai.service.view.playing.counterexample import RecordedPlayer as RecordedPlayer
    from physai.service.view.playing.play_policy import Playback as Playback
    from physai.service.view.playing.play_policy import play as play

__all__ = [
    "AsyncRemoteSession",
    "Playback",
    "RecordedPlayer",
    "RemoteSession",
    "RemoteVectorEnv",
    "ServiceClient",
    "ServiceError",
    "ServiceProcess",
    "StepReply",
    "create_token",
    "list_tokens",
    "list_units",
    "play",
    "play_in_browser",
    "revoke_token",
    "running_service",
    "serve",
    "validate",
]

__getattr__ = lazy_exports(__name__)
