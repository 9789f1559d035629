"""Numbers and names that the how-to pages of clusters give are those of the code."""

import re
from pathlib import Path

import pytest

from physai.cluster.generators.async_collector import MAX_LOSSES
from physai.cluster.generators.ray_executor import START_S
from physai.compute.ray.cluster import TRAINING_PACKAGES
from physai.compute.ray.head import PATIENCE_S, PAUSE_S, STUCK_S
from physai.compute.ray.ray_pool import PACKAGES
from physai.train.settings.config import TrainConfig

ORDINAL = {5: "five", 6: "six", 7: "seven"}
PAGES = Path(__file__).parents[4] / "docs"
FAILURES = "explanation/generators.md"
NAMES = {"physai-sdk": "physai", "torch": "torch", "mujoco": "MuJoCo", "numpy": "NumPy", "onnxruntime": "ONNX Runtime"}


def text(name: str) -> str:
    """The words of a page, in one line."""
    return " ".join((PAGES / name).read_text("utf-8").split())


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (
            FAILURES,
            f"The trainer waits {PATIENCE_S:g} s for it, then ends with an error. If it goes on",
        ),
        ("how-to/cluster.md", f"If the head does not answer for {PATIENCE_S:g} s, the command ends"),
        (FAILURES, f"The trainer waits {START_S:g} s for a processor"),
        (
            FAILURES,
            f"A generator that is lost {ORDINAL[MAX_LOSSES + 1]} times in one iteration ends the run",
        ),
        ("how-to/asynchronous.md", f"at most by `importance_cap`, which is {TrainConfig().importance_cap:g}"),
    ],
)
def test_numbers(page: str, sentence: str) -> None:
    assert sentence in text(page)


def test_how_long_a_raylet_that_is_stopped_goes_unnoticed() -> None:
    """Between calls it is looked for `PATIENCE_S`, in a call `STUCK_S` longer, and one look late."""
    (found,) = re.findall(r"if it is stopped, after (\d+) to (\d+) s", text(FAILURES))
    least, most = map(float, found)
    assert least <= PATIENCE_S
    assert most >= PATIENCE_S + STUCK_S + 4.0 * PAUSE_S


@pytest.mark.parametrize(
    ("page", "before", "packages"),
    [
        ("how-to/cluster.md", "Each needs the same versions of ", TRAINING_PACKAGES),
        ("how-to/cluster.md", "Computers need the same versions of ", PACKAGES),
        ("how-to/sweep.md", "They need the same versions of ", TRAINING_PACKAGES),
    ],
)
def test_whose_versions_are_compared(page: str, before: str, packages: tuple[str, ...]) -> None:
    *first, last = (NAMES[name] for name in packages)
    assert f"{before}{', '.join(first)} and {last}" in text(page)
