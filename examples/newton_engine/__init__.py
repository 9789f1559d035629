"""Newton's MuJoCo solver as the second engine of the gate `engine`: `second: newton` in the file of `--gates`.

pip install ./examples/newton_engine
pip install --no-deps newton==1.8.0
"""

from collections.abc import Mapping, Sequence
from typing import Any

from newton_engine.engine import NewtonEngine
from physai.sim import RolloutEngine
from physai.sim.engines.warp_host import HostWarpEngine


def make_engine(
    model: Any,
    num_worlds: int,
    *,
    fields: Mapping[str, Any],
    stage: int = 0,
    derived: Sequence[str] = (),
    room: tuple[int, int] | None = None,
) -> RolloutEngine:
    """Build worlds that Newton steps on the CPU.

    Raises:
        MissingExtraError: newton, warp or mujoco_warp is not installed.
        ModelError: Newton cannot represent the model, or cannot vary one of the fields.
    """
    return HostWarpEngine(
        model, num_worlds, fields=fields, stage=stage, derived=derived, room=room, device_engine=NewtonEngine
    )
