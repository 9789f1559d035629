"""Options of `physai train` and `finetune` for generators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.compute.ray.ray_address import RayAddress
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.cluster.generators.launch import Generators


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions:
    """Generators on the command line.

    Attributes:
        generators: divide the worlds over K generators, which step them for this process, the trainer.
        ray: run the generators on Ray: auto (the cluster of RAY_ADDRESS or of this computer, else one started here),
            local (one started here), or HOST:PORT of a cluster; without --ray they are in this process.
        placement: how many generators run on which nodes of the Ray cluster; `physai cluster plan --out` writes one.
    """

    generators: Annotated[int | None, Option(metavar="K")] = None
    ray: RayAddress = None
    placement: Annotated[Path | None, Option(metavar="YAML")] = None

    def pool(self, *, staleness: int | None = None) -> Generators | None:
        """The generators; None for none.

        Args:
            staleness: that of the run, which takes generators.

        Raises:
            PhysaiError: options do not go together.
        """
        from physai.cluster.generators.launch import Generators

        count, placement = self.generators, None
        if self.placement is not None:
            from physai.cluster.placement.placement import read_placement

            if self.ray is None:
                raise PhysaiError(
                    f"--placement {self.placement} names nodes of a Ray cluster; add --ray, or leave it out"
                )
            placement = read_placement(self.placement)
            if count not in (None, placement.count):
                raise PhysaiError(
                    f"--generators {count}, but {self.placement} places {placement.count}; leave out --generators, or "
                    "change the file"
                )
            count = placement.count
        if count is None:
            for name, value in (("ray", self.ray), ("staleness", staleness)):
                if value is not None:
                    raise PhysaiError(f"--{name} {value} is for generators; add --generators K, or leave it out")
            return None
        return Generators(count, ray=self.ray, placement=placement, placed_by=self.placement)
