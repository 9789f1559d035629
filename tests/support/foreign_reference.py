"""What a foreign policy sees and wants, computed from its description with numpy alone, as its own program would."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gravity(quat: Floats) -> Floats:
    """R⁻¹ (0, 0, -1) of quaternions wxyz, shape (n, 4)."""
    w, x, y, z = quat.T
    return np.stack([2 * (w * y - x * z), -2 * (w * x + y * z), -(1 - 2 * (x * x + y * y))], axis=1)


def observed(described: dict[str, Any], robot: list[str], inputs: dict[str, Floats]) -> Floats:
    """The observation without histories, shape (n, size).

    Args:
        described: the description, as `import.json` has it.
        robot: the robot's joints in their order.
        inputs: sensors, commands and memories by the names of the graph's inputs.
    """
    columns = [robot.index(name) for name in described["joints"]]
    default = np.array(described["default_pos"])
    blocks: list[Floats] = []
    clocks = 0
    for term in described["observation"]:
        kind = term["of"]
        if kind == "clock":
            clocks += 1
            memory = inputs[f"state.clock_clock{'' if clocks == 1 else f'_{clocks}'}"][:, 0]
            value = _clock(term["clock"], memory, inputs["velocity_command"], described["control_dt"])
        else:
            value = {
                "ang_vel": lambda: inputs["imu_ang_vel_b"],
                "gravity": lambda: gravity(inputs["imu_quat"]),
                "command": lambda: inputs["velocity_command"],
                "joint_pos": lambda: inputs["joint_pos"][:, columns] - default,
                "joint_vel": lambda: inputs["joint_vel"][:, columns],
                "last_action": lambda: inputs["state.previous_action"],
            }[kind]()
        if term["elements"] is not None:
            value = value[:, term["elements"]]
        if term["clip"] is not None:
            value = np.clip(value, -term["clip"], term["clip"])
        blocks.append((value - term["offset"]) * term["scale"])
    return np.concatenate(blocks, axis=1)


def _clock(clock: dict[str, Any], memory: Floats, command: Floats, period: float) -> Floats:
    angle = np.where(memory < 0, 0.0, memory + 2 * np.pi * period / clock["period_s"])
    phases = angle[:, None] + np.array(clock["phases"])
    stands = np.linalg.norm(command, axis=1) < clock["gate"]
    if clock["standing_phase"] is not None:
        phases[stands] = clock["standing_phase"]
    values = np.sin(phases) if clock["wave"] == "sin" else np.cos(phases)
    if clock["standing_phase"] is None:
        values[stands] = 0.0
    return values


def wanted(described: dict[str, Any], network: Path, observation: Floats) -> Floats:
    """Targets by the network's own file, one row at a time as its program does [rad], shape (n, joints)."""
    session: Any = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    rows = [session.run(None, {name: row[None].astype(np.float32)})[0][0] for row in observation]
    limit = described["output_limit"] or np.inf
    return np.array(described["default_pos"]) + np.array(described["action_scale"]) * np.clip(rows, -limit, limit)
