"""A robot with loops whose kinematic tree branches, and whose joints stand at their limits."""

from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PARENTS = (-1, 0, 1, 2, 2, 4, 1, 2, 1, 0, 4, 6)
"""Body that each body hangs on. Welded from 3 to 11, with the joints 5 and 6 coupled, MuJoCo 4.0.0 errs by half."""


def branching_model(seed: int, parents: tuple[int, ...] = PARENTS) -> Any:
    """Joints at random places with random axes."""
    return branching_spec(seed, parents).compile()


def branching_spec(seed: int, parents: tuple[int, ...] = PARENTS) -> mujoco.MjSpec:
    """The same, to be changed before it is compiled."""
    rng = np.random.default_rng(seed)

    def body(number: int) -> str:
        pos, axis = (" ".join(map(str, values)) for values in (rng.uniform(-0.3, 0.3, 3), rng.normal(size=3)))
        children = "".join(body(child) for child, parent in enumerate(parents) if parent == number)
        joint = f'<joint name="j{number}" armature="0.01" range="-25 25" axis="{axis}"/>'
        geom = '<geom size="0.05" mass="1" contype="0" conaffinity="0"/>'
        return f'<body name="b{number}" pos="{pos}">{joint}{geom}{children}</body>'

    loops = '<weld body1="b3" body2="b11"/><joint joint1="j6" joint2="j5"/>'
    text = f"<mujoco><worldbody>{body(0)}</worldbody><equality>{loops}</equality></mujoco>"
    return mujoco.MjSpec.from_string(text)


def random_state(model: Any, seed: int) -> tuple[Array, Array]:
    """Positions, some beyond their limits, and speeds."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.6, 0.6, int(model.nq)), 0.3 * rng.normal(size=int(model.nv))
