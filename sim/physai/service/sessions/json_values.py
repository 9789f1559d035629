"""Messages of a session as JSON."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

Message = dict[str, Any]


def as_json(message: Message) -> Message:
    """The message with arrays as nested lists; NaN and infinities become None."""
    return {name: _json_value(value) for name, value in message.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = cast("npt.NDArray[Any]", value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            # JSON has no NaN; null is what a missing measurement becomes.
            values = array.astype(object)
            values[~np.isfinite(array)] = None
            return values.tolist()
        return array.tolist()
    if isinstance(value, dict):
        return as_json(cast("Message", value))
    if isinstance(value, list):
        return [_json_value(entry) for entry in cast("list[Any]", value)]
    return value
