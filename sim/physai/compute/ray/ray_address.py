"""The option `--ray`."""

from typing import Annotated, TypeAlias

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option


def ray_address(text: str) -> str:
    """Value of `--ray`.

    Raises:
        PhysaiError: the word is no address, as in `--ray workflow.yaml`, which would take a file for one.
    """
    if text not in ("auto", "local") and ":" not in text:
        raise PhysaiError(f"{text!r} is no address; write --ray auto, or put {text!r} before --ray")
    return text


RayAddress: TypeAlias = Annotated[str | None, Option(bare="auto", metavar="ADDRESS", check=ray_address)]
"""Type of the option `--ray`."""
