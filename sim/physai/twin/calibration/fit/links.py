"""Centres of mass that lie outside their links."""

from collections.abc import Sequence
from typing import Any

from physai.twin.model.twin_file import FittedParameter
from physai.twin.parameters.inertia import extent


def outside_links(parameters: Sequence[FittedParameter], model: Any) -> list[str]:
    """Return which fitted centres of mass lie outside their links: what pulls them there is not the link's mass."""
    found: list[str] = []
    for parameter in parameters:
        link, what = parameter.name.rsplit(".", 1)
        if not parameter.identified or not what.startswith("com_"):
            continue
        box, axis, reach = extent(model, int(model.body(link).id)), "xyz".index(what[-1]), 1.96 * parameter.std
        if box is not None and not box[0][axis] - reach <= parameter.value <= box[1][axis] + reach:
            found.append(
                f"{parameter.name}, {parameter.value:.3g} ± {reach:.2g} m, is outside {link}, which reaches "
                f"from {box[0][axis]:.3g} to {box[1][axis]:.3g} m: check signs, zeros and efforts of the recordings"
            )
    return found
