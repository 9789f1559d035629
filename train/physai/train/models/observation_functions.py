"""Functions of sensors and commands that other packages contribute to observations."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from physai.sdk.base.plugins import PluginError, load_plugin
from physai.sdk.contract.terms import ObservationTerm

GROUP = "physai.observation_functions"

ObservationFunction = Callable[[Tensor], Tensor]
"""From values of a sensor or command field, shape (n, field size), to values of the term, shape (n, term size).

It is built of torch's operations, so that gradients and the ONNX exporter see through it, and treats each row alone."""


class ObservationFunctionError(PluginError):
    """A function of an observation term does not return what its term says."""


def load_function(term: ObservationTerm, field_size: int) -> ObservationFunction:
    """Load the function of a term of kind `function`, and check what it returns.

    Raises:
        UnknownNameError: no installed package has a function of that name.
        ObservationFunctionError: two packages have one, it cannot be imported, or it returns another shape.
    """
    name = str(term.function)
    function: Any = load_plugin(GROUP, "observation function", name, error=ObservationFunctionError)
    value = torch.zeros(2, field_size)
    try:
        result: object = function(value)
    # A function of another package may raise anything.
    except Exception as error:
        raise ObservationFunctionError(
            f"the observation function {name!r} fails on an input of shape (2, {field_size}): "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(result, Tensor):
        raise ObservationFunctionError(
            f"the observation function {name!r} returns {type(result).__name__}, not a tensor"
        )
    shape = tuple(result.shape)
    if shape != (2, term.size):
        raise ObservationFunctionError(
            f"the observation function {name!r} returns shape {shape} for an input of shape (2, {field_size}), "
            f"the term {term.name!r} says (2, {term.size})"
        )
    return function
