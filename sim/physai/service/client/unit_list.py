"""Robots of a service: what each one runs, and how it fares."""

from __future__ import annotations

import os
from typing import Annotated, Any

from physai.sdk.base.errors import MissingExtraError
from physai.sdk.base.parameters.option import Option


def list_units(
    robot: Annotated[str | None, Option(word=True, metavar="MODEL/UNIT")] = None,
    *,
    server: Annotated[str, Option(metavar="URL")] = "http://127.0.0.1:8800",
) -> list[dict[str, Any]]:
    """List the robots that filed documents or recordings with a service.

    Args:
        robot: only this one, with the drift reports on it.
        server: service of `physai sim serve`; token in PHYSAI_TOKEN.

    Returns:
        Of each robot `robot`, `active`, `verdict`, `drift`, `shadows` and `last_recording`, as `GET /v1/robots/units`
        answers; of one robot also `reports`, the drift reports on it.

    Raises:
        ServiceError: nothing is known of the robot, or the service cannot be reached.
    """
    try:
        from physai.service.client.service import ServiceClient
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"physai sim units needs {error.name}; pip install 'physai-sdk[serve]'") from error
    client = ServiceClient(server, access_token=os.environ.get("PHYSAI_TOKEN"))
    return client.units() if robot is None else [{**client.unit(robot), "reports": client.drift(robot)}]
