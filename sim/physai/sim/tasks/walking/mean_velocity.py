"""Mean velocity over the end of a command, for gaits whose base sways: from where it was at the beginning of a window.

A robot that follows a command (v, ω) in its own frame for a time T turns by ωT and moves along an arc by
∫ R(ωt) v dt, in the frame of its heading at the beginning.
"""

from typing import Any

from physai.sim.engines.protocol import Array
from physai.sim.tasks.task import Success, Term, WorldView

WINDOW_S = 2.0
"""Whole cycles of gaits of 0.5, 1 or 2 s."""
_SMALL = 1e-6


def mean_success(fallen: Term, command: str, *, tolerance_m_s: float, tolerance_rad_s: float) -> Success:
    """The mean velocity over the last 2 s of a command is within the tolerances of it.

    Args:
        fallen: true where the robot has fallen.
        command: name of the command: forwards, to the left [m/s], turn to the left [rad/s].
        tolerance_m_s: of the planar velocity [m/s].
        tolerance_rad_s: of the turning rate [rad/s].
    """

    def follows(view: WorldView) -> Array:
        xp, wanted = view.xp, view.commands[command]
        before, heading = view.window_qpos, _yaw(view.window_qpos, view.xp)
        turn = WINDOW_S * wanted[:, 2]
        rest = turn + xp.where(xp.abs(turn) < _SMALL, _SMALL, 0.0)
        along, aside = WINDOW_S * xp.sin(rest) / rest, WINDOW_S * (1.0 - xp.cos(rest)) / rest
        moved = view.qpos[:, :2] - before[:, :2]
        forwards = xp.cos(heading) * moved[:, 0] + xp.sin(heading) * moved[:, 1]
        left = xp.cos(heading) * moved[:, 1] - xp.sin(heading) * moved[:, 0]
        off_x = forwards - along * wanted[:, 0] + aside * wanted[:, 1]
        off_y = left - along * wanted[:, 1] - aside * wanted[:, 0]
        off = _yaw(view.qpos, xp) - heading - turn
        # Within ± half a turn.
        off = xp.abs(xp.atan2(xp.sin(off), xp.cos(off)))
        near = xp.sqrt(off_x * off_x + off_y * off_y) < WINDOW_S * tolerance_m_s
        return near & (off < WINDOW_S * tolerance_rad_s) & ~fallen(view)

    text = f"mean of the last {WINDOW_S:g} s within {tolerance_m_s:g} m/s and {tolerance_rad_s:g} rad/s of the command"
    return Success(condition=follows, window_s=WINDOW_S, text=f"{text}, on its feet")


def _yaw(qpos: Array, xp: Any) -> Array:
    """Heading of the base [rad], shape (num_worlds,)."""
    w, x, y, z = (qpos[:, column] for column in range(3, 7))
    return xp.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
