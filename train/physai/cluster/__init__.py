"""Training on many computers: generators of rollouts, sweeps and workflows.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.cluster.generators.launch import Generators as Generators

__all__ = ["Generators"]

__getattr__ = lazy_exports(__name__)
