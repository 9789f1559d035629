"""Text in a film: time, commands, and how often the task succeeded."""

from collections.abc import Sequence

from physai.sdk.contract.terms import CommandField
from physai.sim.engines.protocol import Array
from physai.sim.playback.moment import Moment

MAX_COMMANDS = 4
"""Commands written at most."""
MAX_ELEMENTS = 4
"""Elements of a command written at most; of a pose, the position."""
POSE_SIZE = 7
WIDTH = 28
"""Characters of a name or value at most."""


class FilmLabels:
    """Keeps count of the successes of a film."""

    def __init__(self, fields: Sequence[CommandField]) -> None:
        """Notes which commands there are."""
        self._fields = fields[:MAX_COMMANDS]
        self._judged = self._succeeded = 0

    def add(self, moment: Moment) -> None:
        """Counts the success check of a moment, if it has one."""
        if moment.verdict is not None:
            self._judged += 1
            self._succeeded += moment.verdict.succeeded

    def at(self, moment: Moment, time_s: float) -> tuple[tuple[str, str], ...]:
        """Names and values to write, ASCII.

        Args:
            moment: says the episode and its commands.
            time_s: time in the episode [s].
        """
        # Tenths of a second: a robot that stands still keeps its picture in between.
        labels = [("episode", str(moment.episode + 1)), ("time", f"{int(10.0 * time_s + 1e-6) / 10.0:.1f} s")]
        labels += [(field.name, _value(field, moment.commands[field.name])) for field in self._fields]
        if self._judged:
            labels.append(("succeeded", f"{self._succeeded} of {self._judged}"))
        return tuple((_plain(name), _plain(value)) for name, value in labels)


def _value(field: CommandField, values: Array) -> str:
    shown = values[:3] if field.size == POSE_SIZE else values[:MAX_ELEMENTS]
    numbers = " ".join(f"{float(value):.2f}" for value in shown)
    # A unit per group of elements, as in "m, 1": that of the first ones.
    return f"{numbers} {field.unit.split(',')[0]}".rstrip()


def _plain(text: str) -> str:
    """Replaces characters that MuJoCo's font does not have, which come out as boxes."""
    return text.replace("·", "*")[:WIDTH].encode("ascii", "replace").decode()
