"""Read the scores of policies from CSV files."""

import csv
import io
import math
from pathlib import Path

import numpy as np

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain
from physai.sdk.stats.rank import Trials

MAX_BYTES = 2**24
MAX_COLUMNS = 1000
MAX_POLICIES = 100
MAX_TRIALS = 10_000
"""Of one policy."""
_HELP = "`physai sim rank --help` shows the columns of such a file"
_WORDS = {"0": 0.0, "1": 1.0, "true": 1.0, "false": 0.0}


class ScoreFileError(PhysaiError):
    """A file of scores cannot be read."""


def read_scores(path: Path) -> dict[str, Trials]:
    """Return what a file says of each policy, in the order of the file.

    The first line names the columns: `policy` and `successes`, `trials`; or `policy` and `success`; or `policy` and
    `score`. Other columns are ignored.

    Raises:
        ScoreFileError: the file is missing, too large or not of such a form.
    """
    rows = _rows(path)
    columns = set(rows[0][1]) if rows else set[str]()
    if "policy" not in columns:
        raise ScoreFileError(f"{path}: no rows with a column `policy`; {_HELP}")
    kinds = [kind for kind in ("successes", "success", "score") if kind in columns]
    if len(kinds) != 1 or (kinds == ["successes"] and "trials" not in columns):
        raise ScoreFileError(f"{path}: the columns {_listed(sorted(columns))} do not say which score; {_HELP}")
    if kinds == ["successes"]:
        return _counts(path, rows)
    trials: dict[str, list[float]] = {}
    for line, row in rows:
        values = trials.setdefault(_name(path, line, row), [])
        values.append(_success(path, line, row) if kinds == ["success"] else _number(path, line, row, "score"))
        if len(values) > MAX_TRIALS or len(trials) > MAX_POLICIES:
            raise ScoreFileError(f"{path}:{line}: more than {MAX_POLICIES} policies or {MAX_TRIALS} trials of one")
    return {name: _trials(values, binary=kinds == ["success"]) for name, values in trials.items()}


def _trials(values: list[float], *, binary: bool) -> Trials:
    score = float(np.mean(values))
    if binary:
        return Trials(score=score, trials=len(values))
    if len(values) == 1:
        return Trials(score=score)
    return Trials(score=score, trials=len(values), values=np.array(values))


def _counts(path: Path, rows: list[tuple[int, dict[str, str]]]) -> dict[str, Trials]:
    policies: dict[str, Trials] = {}
    for line, row in rows:
        name = _name(path, line, row)
        if name in policies:
            raise ScoreFileError(f"{path}:{line}: a second row of policy {name}")
        successes, trials = (_number(path, line, row, column) for column in ("successes", "trials"))
        if successes % 1.0 or trials % 1.0 or not (0 <= successes <= trials and 1 <= trials <= 1e9):
            raise ScoreFileError(f"{path}:{line}: {successes:g} successes of {trials:g} trials")
        policies[name] = Trials(score=successes / trials, trials=int(trials))
        if len(policies) > MAX_POLICIES:
            raise ScoreFileError(f"{path}:{line}: more than {MAX_POLICIES} policies")
    return policies


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line number and values by column of each row that is not empty."""
    try:
        data = read_plain(path, limit=MAX_BYTES)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ScoreFileError(f"{path}: cannot be read: {error}") from None
    if len(data) > MAX_BYTES:
        raise ScoreFileError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, list[str]())]
        if len(header) > MAX_COLUMNS:
            raise ScoreFileError(f"{path}:1: {len(header)} columns, at most {MAX_COLUMNS} are read; {_HELP}")
        if len(set(header)) != len(header):
            raise ScoreFileError(f"{path}:1: a column is named twice: {_listed(header)}")
        rows: list[tuple[int, dict[str, str]]] = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise ScoreFileError(f"{path}:{reader.line_num}: {len(cells)} values for {len(header)} columns")
            if len(rows) >= MAX_POLICIES * MAX_TRIALS:
                raise ScoreFileError(f"{path}:{reader.line_num}: more than {MAX_POLICIES * MAX_TRIALS} rows")
            rows.append((reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))))
    except csv.Error as error:
        raise ScoreFileError(f"{path}:{reader.line_num}: {error}") from None
    return rows


def _listed(names: list[str]) -> str:
    return repr(", ".join(names))[1:-1][:200]


def _name(path: Path, line: int, row: dict[str, str]) -> str:
    name = row["policy"]
    if not (0 < len(name) <= 200 and name.isprintable()):
        raise ScoreFileError(
            f"{path}:{line}: a policy's name must have 1 to 200 characters, all printable, got {len(name)}: "
            f"{name!r:.80}"
        )
    return name


def _success(path: Path, line: int, row: dict[str, str]) -> float:
    value = _WORDS.get(row["success"].lower())
    if value is None:
        raise ScoreFileError(f"{path}:{line}: success must be 0, 1, true or false, got {row['success'][:40]!r}")
    return value


def _number(path: Path, line: int, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e100:
        raise ScoreFileError(f"{path}:{line}: {column} must be a number, got {row[column][:40]!r}")
    return value
