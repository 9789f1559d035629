"""Places where work runs and files lie: worker processes, Ray, object stores, and the sandbox of user code.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry

if TYPE_CHECKING:
    from physai.compute.objects.address import Address as Address
    from physai.compute.objects.address import ArtefactError as ArtefactError
    from physai.compute.objects.manifest import ArtefactManifest as ArtefactManifest
    from physai.compute.objects.manifest import FileEntry as FileEntry
    from physai.compute.objects.transfer import pull as pull
    from physai.compute.objects.transfer import push as push
    from physai.compute.objects.transfer import show as show
    from physai.compute.pool import WorkerError as WorkerError

__all__ = [
    "Address",
    "ArtefactError",
    "ArtefactManifest",
    "FileEntry",
    "WorkerError",
    "pull",
    "push",
    "show",
]

__getattr__ = lazy_exports(__name__)
