"""One quantity of a robot model that a calibration may change."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One quantity of the model that a fit may change."""

    name: str
    unit: str
    prior: float
    prior_std: float
    lower: float
    upper: float
