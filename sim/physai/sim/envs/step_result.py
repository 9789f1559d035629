"""Results of one step of an environment."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from physai.sim.engines.protocol import Array

Bools = npt.NDArray[np.bool_]


@dataclass
class StepResult:
    """Results of one control period; arrays are owned by the caller, first axis the world."""

    sensors: dict[str, Array]
    """Sensor fields after noise, bias and delay, float32, shape (num_worlds, size); of the new episode where done."""
    commands: dict[str, Array]
    """Command fields as the policy sees them (`physai.sdk.policy.command_shaping`), float32, shape (num_worlds, size).
    The task judges by those that were asked for, `WorldView.commands`."""
    critic: Array
    """Critic's input, float32, shape (num_worlds, critic_size); of the new episode where done."""
    final_critic: Array
    """Critic's input before a reset, float32, same shape; what a time-out bootstraps from."""
    reward: Array
    """Reward of the step, float32, shape (num_worlds,)."""
    terminated: Bools
    """Episodes that ended by failure."""
    truncated: Bools
    """Episodes that ended by time."""
    judged: Bools
    """Worlds whose command or episode ended in this step, in full length or by failure; in training only those that
    had their full length before them."""
    succeeded: Bools
    """Judged worlds that met the success criterion."""
    metrics: dict[str, Array] = field(default_factory=dict[str, Array])
    """The task's metrics of the judged worlds, shape (judged.sum(),)."""
    reward_terms: dict[str, float] = field(default_factory=dict[str, float])
    """Mean of each weighted reward term over the worlds, per second."""
    final_sensors: dict[str, Array] | None = None
    """Sensor fields as the ended episodes would have gone on, shape (done.sum(), size); None unless asked for."""
    final_commands: dict[str, Array] | None = None
    """Command fields of the ended episodes, shape (done.sum(), size); None unless asked for."""

    @property
    def done(self) -> Bools:
        """Episodes that ended; the arrays above already belong to the next one."""
        return self.terminated | self.truncated
