"""Griffe extension: the API pages show `Annotated[T, Option(…)]` as `T`; `Option` is for the command line."""

from typing import Any

import griffe


class PlainSignatures(griffe.Extension):
    """Removes `Option` from the annotations of parameters and attributes."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Changes a function's parameters."""
        for parameter in func.parameters:
            parameter.annotation = plain(parameter.annotation)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Changes an attribute."""
        attr.annotation = plain(attr.annotation)


def plain(annotation: str | griffe.Expr | None) -> str | griffe.Expr | None:
    """The annotation without `Option`, also inside a union."""
    if isinstance(annotation, griffe.ExprBinOp):
        for side in ("left", "right"):
            setattr(annotation, side, plain(getattr(annotation, side)))
    if not isinstance(annotation, griffe.ExprSubscript) or str(annotation.left) != "Annotated":
        return annotation
    inner = annotation.slice
    if not isinstance(inner, griffe.ExprTuple) or not str(inner.elements[1]).startswith("Option("):
        return annotation
    return inner.elements[0]
