"""An engine of one's own: MuJoCo's, which counts the physics steps of all engines of this process.

pip install ./examples/counting_engine
"""

from collections.abc import Mapping, Sequence
from typing import Any

from physai.sim import EngineMaker, RolloutEngine, load_engine


class CountingEngine:
    """Passes every call on to MuJoCo's engine."""

    steps = 0
    """Steps of each world so far, summed over the engines."""

    def __init__(
        self,
        model: Any,
        num_worlds: int,
        *,
        fields: Mapping[str, Any],
        stage: int = 0,
        derived: Sequence[str] = (),
        room: tuple[int, int] | None = None,
    ) -> None:
        """Builds the worlds; the arguments are those of `EngineMaker`."""
        mujoco = load_engine("mujoco")
        self._engine = mujoco(model, num_worlds, fields=fields, stage=stage, derived=derived, room=room)
        self.xp, self.model, self.num_worlds = self._engine.xp, self._engine.model, num_worlds

    @property
    def last_qpos(self) -> Any:
        return self._engine.last_qpos

    @property
    def last_qvel(self) -> Any:
        return self._engine.last_qvel

    def state(self, name: str) -> Any:
        return self._engine.state(name)

    def derived(self, name: str) -> Any:
        return self._engine.derived(name)

    def parameter(self, name: str) -> Any:
        return self._engine.parameter(name)

    def parameters_changed(self, mask: Any) -> None:
        self._engine.parameters_changed(mask)

    def reset(self, mask: Any, qpos: Any, qvel: Any) -> None:
        self._engine.reset(mask, qpos, qvel)

    def step(self, num_steps: int) -> None:
        CountingEngine.steps += num_steps
        self._engine.step(num_steps)

    def drive(self, controls: Any) -> None:
        CountingEngine.steps += controls.shape[1]
        self._engine.drive(controls)

    def diverged(self) -> Any:
        return self._engine.diverged()

    def snapshot(self, *, parameters: bool = True) -> dict[str, Any]:
        return self._engine.snapshot(parameters=parameters)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self._engine.restore(snapshot)


# pyright checks here that nothing is missing.
maker: EngineMaker = CountingEngine
engine_type: type[RolloutEngine] = CountingEngine
