"""docs/notes/gpu.md: what the generator writes, and that the page in the repository is such a page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu.gpu_page import HEADER, MAX_BYTES, page
from benchmarks.measure import BenchmarkResult, WorkloadError, as_text, document

from physai.sdk.base.errors import PhysaiError

PAGE = Path(__file__).parents[4] / "docs" / "notes" / "gpu.md"
NOT_MEASURED = BenchmarkResult(name="env_over_raw.go2.4096", unit="1", runs=(), missing="no CUDA device")


def cells(text: str) -> list[list[str]]:
    """Cells of all lines of tables."""
    lines = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if set(line) != {"---"}]


def document_of(text: str) -> str:
    """Results that give a page's tables, read from them."""
    lines = cells(text)
    facts = {line[0]: line[1] for line in lines if len(line) == 2}
    versions = dict(part.rsplit(" ", 1) for part in facts["Versions"].split(", "))
    machine: dict[str, Any] = {"date": facts["Date"], "cpu": facts["CPU"], "versions": versions}
    machine["gpus"] = [] if facts["Card"] == "none" else facts["Card"].split("; ")
    rows: list[dict[str, Any]] = []
    for name, median, unit, spread, runs, peer in (line for line in lines if len(line) == 6 and line[0][:1] == "`"):
        row: dict[str, Any] = {"name": name.strip("`"), "unit": unit, "peer": peer or None, "value": None, "runs": []}
        if median.startswith("not measured: "):
            row["missing"] = median.removeprefix("not measured: ")
        else:
            row["value"] = number(median)
            ends = [number(end) for end in spread.split(" … ")] if spread else [row["value"]]
            row["runs"] = ends + [row["value"]] * (int(runs) - len(ends))
        rows.append(row)
    return json.dumps({"bench": "gpu", "machine": machine, "results": rows})


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_a_page_has_every_result_and_the_reason_for_one_that_is_missing() -> None:
    measured = BenchmarkResult(name="raw_steps_per_s", unit="1/s", runs=(1e6, 3e6, 2e6), peer="a|b")
    record = document("gpu", [measured, NOT_MEASURED])
    record["machine"] |= {"gpus": ["NVIDIA H200, 143771 MiB, driver 570.86.15"], "date": "2026-11-23"}
    text = page(json.dumps(record))
    assert "| `raw_steps_per_s` | 2,000,000 | 1/s | 1,000,000 … 3,000,000 | 3 | a\\|b |\n" in text
    assert "| `env_over_raw.go2.4096` | not measured: no CUDA device | 1 |  |  |  |\n" in text
    assert ["Card", "NVIDIA H200, 143771 MiB, driver 570.86.15"] in cells(text)
    assert ["Date", "2026-11-23"] in cells(text)
    assert list(HEADER) in cells(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "machine: Field required"),
        ("no", "Invalid JSON"),
        (" " * (MAX_BYTES + 1), f"results of {MAX_BYTES + 1} characters; the longest that are read have {MAX_BYTES}"),
        (json.dumps(document("gpu", [NOT_MEASURED])).replace('"runs": []', '"runs": [NaN]'), "runs"),
    ],
)
def test_other_files_are_refused(text: str, said: str) -> None:
    with pytest.raises(PhysaiError, match=re.escape(said)):
        page(text)


def test_the_page_in_the_repository_is_one_that_the_generator_writes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(document_of(text)) == text


def test_without_a_card_the_page_in_the_repository_measures_no_speed() -> None:
    rows = {line[0].strip("`"): line[1] for line in cells(PAGE.read_text(encoding="utf-8"))}
    speeds = ("env_over_raw.", "env_over_mjlab", "train_over_mjlab", "seconds_to_success.", "cold_start_s.")
    found = {name: value for name, value in rows.items() if name.startswith(speeds)}
    worlds = {f"env_over_raw.{robot}.{count}" for robot in ("go2", "ur10e") for count in (4096, 8192)}
    tasks = {
        f"{what}.{task}" for what in ("seconds_to_success", "cold_start_s") for task in ("go2-velocity", "ur10e-reach")
    }
    assert {"env_over_mjlab", "train_over_mjlab"} | worlds | tasks <= set(found)
    assert {value == "not measured: no CUDA device" for value in found.values()} == {rows["Card"] == "none"}


def test_a_result_has_runs_or_a_reason() -> None:
    record = document("gpu", [NOT_MEASURED])["results"]
    assert record[0] == {
        **{"name": "env_over_raw.go2.4096", "value": None, "unit": "1", "peer": None, "runs": []},
        "missing": "no CUDA device",
    }
    assert "not measured: no CUDA device" in as_text([NOT_MEASURED])
    for runs, missing in (((), None), ((1.0,), "no CUDA device")):
        with pytest.raises(WorkloadError, match="runs, and the reason for having none"):
            BenchmarkResult(name="x", unit="1", runs=runs, missing=missing)
