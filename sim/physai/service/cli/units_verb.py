"""`physai sim units`: the robots of a service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb
from physai.service.client.unit_list import list_units

_DAY_S = 86400.0


@verb(list_units, summary="list robots: what they run, verdict, drift, shadows, recordings")
def command(call: Callable[..., list[dict[str, Any]]], *, robot: str | None = None, as_json: AsJson = False) -> int:
    """Print the robots."""
    units = call()
    if as_json:
        print(json.dumps({"units": units}, indent=2))
        return 0
    rows = [[unit["robot"], *_row(unit)] for unit in units]
    head = ["robot", "version", "verdict", "drift", "shadow", "last recording"]
    print(printable(table(head, rows, indent="")) if rows else "no robots")
    for report in units[0]["reports"] if robot is not None else ():
        values = ", ".join(f"{name} {value:.4g}" for name, value in report["values"].items())
        print(printable(f"{report['issued']}  {report['finding']:11} {values}".rstrip()))
    return 0


def _row(unit: dict[str, Any]) -> list[str]:
    active, drift, recording = unit["active"], unit["drift"], unit["last_recording"]
    shadows = unit["shadows"]
    return [
        "" if active is None else f"{active['version']}{', on trial' if active['on_trial'] else ''}",
        "" if active is None else _verdict(unit["verdict"]),
        "" if drift is None else f"{drift['finding']} {drift['issued'][:10]}",
        f"{shadows[0]['ticks']} ticks" if shadows else "",
        "" if recording is None else recording["name"],
    ]


def _verdict(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "NONE"
    if verdict["revoked"] is not None:
        return f"REVOKED: {verdict['revoked']['reason']}"
    word = "EXPIRED" if verdict["expired"] else "narrowed" if verdict["narrowed"] is not None else "PASS"
    return f"{word}, {verdict['age_s'] / _DAY_S:.1f} days"
