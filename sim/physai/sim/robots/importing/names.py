"""Names of joints as contracts, topics and files allow them."""

import re
from collections.abc import Sequence

from physai.sim.robots.importing.decisions import Decisions

MAX_CHARACTERS = 64
_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,63}")


def usable_names(names: Sequence[str], decisions: Decisions) -> dict[str, str]:
    """New names of those joints whose names a contract does not allow, by their old ones; notes each.

    Characters other than letters, digits and `_.-/` become `_`; a number makes names differ that would become equal.
    """
    taken, renamed = set(names), dict[str, str]()
    for name in names:
        if not name or name in renamed or _ALLOWED.fullmatch(name):
            continue
        stem = re.sub(r"[^A-Za-z0-9_.\-/]", "_", name)
        stem = stem if re.match(r"[A-Za-z_]", stem) else f"_{stem}"
        new, number = stem[:MAX_CHARACTERS], 1
        while new in taken:
            number += 1
            new = f"{stem[: MAX_CHARACTERS - len(str(number)) - 1]}_{number}"
        taken.add(new)
        renamed[name] = new
        decisions.add(new, f"was {name[:80]!r}, which a contract does not allow as a joint's name", "edit the file")
    return renamed
