"""Model of a sensor's reading: low-pass filter, errors, steps, and speed as a difference.

Written with operators that numpy arrays and torch tensors share, so that both environments compute the same.
"""

import math
from collections.abc import Mapping
from typing import Any

from physai.sdk.base.errors import TaskError
from physai.sim.tasks.task import SensorModel


class Readings:
    """Readings of the sensor fields of a task at the policy's own rate, all fields side by side.

    A field's truth x(t) passes a first-order low-pass filter y(t) = e·y(t - dt) + (1 - e)·x(t) with e = exp(-dt/T),
    gets its errors, and is rounded to a multiple of the resolution. For a speed that the robot computes, x is the
    difference (r(t) - r(t - k·dt))/(k·dt) of the readings r of the position, with their noise and their steps.
    """

    def __init__(self, slices: Mapping[str, slice], models: Mapping[str, SensorModel], *, step_dt: float) -> None:
        """Prepare the fields.

        Args:
            slices: columns of each field; `joint_pos` is among them if `joint_vel` is a difference.
            models: sensor models by field.
            step_dt: time from one reading to the next [s].

        Raises:
            TaskError: a field other than `joint_vel` is to be the difference of positions.
        """
        fields = {name: models.get(name, SensorModel()) for name in slices}
        for name, model in fields.items():
            if model.difference_span and name != "joint_vel":
                raise TaskError(
                    f"sensor model of {name}: difference_span is {model.difference_span}, but only joint_vel can be a "
                    "difference of joint_pos"
                )
        self.step_dt = step_dt
        self.span = fields["joint_vel"].difference_span if "joint_vel" in fields else 0
        """Number of readings over which a speed is a difference; 0 if none is."""
        if self.span and "joint_pos" not in slices:
            raise TaskError("sensor model of joint_vel: it is a difference of joint_pos, which the robot does not have")
        self.position = slices.get("joint_pos", slice(0, 0))
        self.speed = slices.get("joint_vel", slice(0, 0))
        self._steps = {name: model.resolution for name, model in fields.items() if model.resolution > 0.0}
        self._keep = {
            name: math.exp(-step_dt / model.time_constant_s)
            for name, model in fields.items()
            if model.time_constant_s > 0.0
        }
        self._slices = {name: slices[name] for name in slices if name != "joint_vel" or not self.span}

    @property
    def filtered(self) -> bool:
        """Whether any field passes a filter."""
        return bool(self._keep)

    def read(self, truth: Any, errors: Any, smooth: Any, older: Any) -> Any:
        """Return the readings, float32, shape (n, width).

        Args:
            truth: true values, shape (n, width); overwritten.
            errors: constant offset and noise, in the same shape; 0.0 for none.
            smooth: the filters' outputs one reading ago, shape (n, width); moved on in place.
            older: readings of the positions `span` readings ago, shape (n, joints).
        """
        for name, part in self._slices.items():
            self._filter(name, part, truth, smooth)
        sample = truth + errors
        for name, part in self._slices.items():
            self._round(name, part, sample)
        if self.span:
            part = self.speed
            truth[:, part] = (sample[:, self.position] - older) / (self.span * self.step_dt)
            self._filter("joint_vel", part, truth, smooth)
            # The errors of the position are in the difference already; these are the speed's own.
            sample[:, part] = (truth + errors)[:, part]
            self._round("joint_vel", part, sample)
        return sample

    def before(self, truth: Any, offset: Any, noise: Any) -> list[Any]:
        """Return the readings of the positions before the first one, newest first, shape (n, joints) each.

        A robot that is somewhere with some speed has moved there with it: q - i·dt·q'.

        Args:
            truth: true values at the first reading, shape (n, width).
            offset: constant offsets, in the same shape.
            noise: noise of the positions, shape (n, span · joints); 0.0 for none.
        """
        position, speed = truth[:, self.position], truth[:, self.speed]
        count = position.shape[1]
        past: list[Any] = []
        for i in range(1, self.span + 1):
            part = slice((i - 1) * count, i * count)
            reading = position - (i * self.step_dt) * speed + offset[:, self.position]
            reading = reading + (0.0 if isinstance(noise, float) else noise[:, part])
            self._round("joint_pos", slice(0, count), reading)
            past.append(reading)
        return past

    def _filter(self, name: str, part: slice, truth: Any, smooth: Any) -> None:
        if name in self._keep:
            keep = self._keep[name]
            smooth[:, part] = keep * smooth[:, part] + (1.0 - keep) * truth[:, part]
            truth[:, part] = smooth[:, part]

    def _round(self, name: str, part: slice, sample: Any) -> None:
        if name in self._steps:
            step = self._steps[name]
            sample[:, part] = (sample[:, part] / step).round() * step
