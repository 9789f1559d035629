"""The scene that tasks with a cube on a table share: robot, table and cube, and the parts of the task that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from physai.sdk.contract.terms import CommandField, ObservationTerm
from physai.sim.engines.protocol import Stage
from physai.sim.robots import Robot
from physai.sim.robots.objects import with_objects
from physai.sim.tasks.arms.arm import (
    CONTROL_DT,
    CUBE_SENSOR,
    INSET,
    JOINT_SENSORS,
    TOP_SPEED,
    arm_contract,
    arm_randomisation,
    require_servos,
)
from physai.sim.tasks.arms.scene_state import SceneState
from physai.sim.tasks.arms.tabletop import DRAWS, Tabletop
from physai.sim.tasks.common import joint_vel_squared, overspeed, target_rate_squared
from physai.sim.tasks.task import Delay, RewardTerm, Success, Term

EPISODE_S, HOLD_S = 6.4, 0.5
TRAINING = {"num_envs": 1024, "horizon": 32, "discount_s": 2.0, "hidden": (128, 128), "stop_at_success": 0.95}
"""Settings of PPO."""


@dataclass(frozen=True, kw_only=True)
class CubeScene:
    """An arm at a table with a cube."""

    robot: Robot
    table: Tabletop
    driven: tuple[str, ...]
    """Joints that the policy commands."""
    model: Any
    """Compiled MjModel of all three."""
    state: SceneState

    @classmethod
    def of(
        cls, robot: Robot, table: Tabletop, driven: tuple[str, ...], *, finger_radius: float | None = None
    ) -> "CubeScene":
        """Compile the scene.

        Args:
            robot: arm whose tip reaches the table.
            table: table and cube.
            driven: joints that the policy commands.
            finger_radius: radius of a ball at the tip that pushes [m]; None for no ball.

        Raises:
            TaskError: a joint that is commanded has no position servo.
        """
        require_servos(robot, driven)
        step = float(robot.model.opt.timestep)
        model = with_objects(robot, table.boxes, physics_dt=step, finger_radius=finger_radius)
        return cls(robot=robot, table=table, driven=driven, model=model, state=SceneState(model, robot.spec, driven))

    def parts(
        self, name: str, observed: Sequence[ObservationTerm], commands: Sequence[CommandField] = ()
    ) -> dict[str, Any]:
        """Arguments of `Task` that such tasks share.

        Args:
            name: task name.
            observed: what the policy sees besides its joints.
            commands: fields that an operator sets.
        """
        robot, state, step = self.robot, self.state, float(self.robot.model.opt.timestep)
        decimation = max(1, round(CONTROL_DT / step))
        return {
            "name": name,
            "robot": robot,
            "model": self.model,
            "contract": arm_contract(
                name,
                state.seeing(robot, self.table.boxes),
                observed=observed,
                commands=commands,
                physics_dt=step,
                decimation=decimation,
                driven=self.driven,
                inset=INSET,
                top_speed=TOP_SPEED,
            ),
            "episode_length_s": round(EPISODE_S / (decimation * step)) * decimation * step,
            "reset": self.table.reset(),
            "reset_draws": DRAWS,
            "stage": Stage.POSITION,
            "derived": ("site_xpos", "sensordata"),
            "sensors": {**JOINT_SENSORS, state.sensor: CUBE_SENSOR},
            "action_delay": Delay(lower_s=0.0, upper_s=2 * step),
            "randomisation": (*arm_randomisation(robot.model, objects=True), *state.cube_randomisation()),
            "training": TRAINING,
        }

    def rewards(self, **terms: tuple[Term, float]) -> dict[str, RewardTerm]:
        """Rewards of a task's terms, with their weights, and of those that keep the arm's motion calm."""
        calm: dict[str, tuple[Term, float]] = {
            "target_rate": (target_rate_squared, -0.01),
            "joint_vel": (joint_vel_squared, -0.01),
            "overspeed": (overspeed(self.robot.spec), -10.0),
        }
        return {name: RewardTerm(term=term, weight=weight) for name, (term, weight) in (terms | calm).items()}

    def held(self, condition: Term, text: str) -> Success:
        """Success if a condition, in words `text`, is met at the end of the episode."""
        return Success(condition=condition, hold_s=HOLD_S, text=f"{text} for the last {HOLD_S:g} s of {EPISODE_S} s")
