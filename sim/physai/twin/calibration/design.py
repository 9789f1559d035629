"""Commands whose recording constrains what the recordings of a twin left open, designed and written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import MAX_SEED, require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sim.robots import Robot
    from physai.twin.calibration.stand_in.excitation import Excitation
    from physai.twin.model.twin import Twin


@dataclass(frozen=True, kw_only=True)
class DesignedCommands:
    """Commands for a robot, and what their recording would tell."""

    excitation: Excitation
    robot: Robot
    file: Path | None

    @property
    def constrains_all(self) -> bool:
        """Whether the recording would constrain every parameter that it was designed for."""
        return len(self.excitation.constrained) == len(self.excitation.after)


def excite(
    twin: Path | str | Twin,
    *,
    parameters: Annotated[Sequence[str], Option(flags=("--for",), metavar="PARAMETER")] = (),
    out: Annotated[Path | str | None, Option(flags=("-o",), old=("--output",))] = Path("excitation.csv"),
    duration_s: float = 10.0,
    rate_hz: Annotated[float, Option(metavar="HZ")] = 250.0,
    candidates: int = 12,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> DesignedCommands:
    """Design commands whose recording would constrain parameters of a twin best, and write them as CSV.

    Each candidate is played in the twin.

    Args:
        twin: twin.json, as `physai sim calibrate` writes it.
        parameters: parameters to constrain, such as link2.mass. None for all that the twin's recordings do not.
        out: file to write.
        duration_s: length of the commands [s].
        rate_hz: commands per second.
        candidates: number of candidates that are compared.
        seed: seed of the candidates.
        progress: called with the share that is done.

    Returns:
        The commands, the robot and the file.

    Raises:
        UnknownNameError: the twin has no parameter of a name in `parameters`.
        PhysaiError: an argument is out of range, or the file cannot be written.
    """
    from physai.twin.calibration.stand_in.excitation import design_excitation, write_commands
    from physai.twin.model.twin import load_twin

    require_range("seed", seed, 0, MAX_SEED)
    loaded = load_twin(twin) if isinstance(twin, str | Path) else twin
    found = design_excitation(
        loaded,
        parameters,
        duration_s=duration_s,
        rate_hz=rate_hz,
        candidates=candidates,
        seed=seed,
        num_threads=len(os.sched_getaffinity(0)),
        tell=progress,
    )
    robot, file = loaded.nominal(), None if out is None else Path(out)
    if file is not None:
        try:
            write_commands(found, robot, file)
        except OSError as error:
            raise PhysaiError(f"{file}: cannot be written: {error.strerror}") from error
    return DesignedCommands(excitation=found, robot=robot, file=file)
