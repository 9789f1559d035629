"""The page on learning from human feedback names what exists, and leaves out no system."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "rlhf.md").read_text(encoding="utf-8")
SYSTEMS = """
    OpenRLHF, TRL, verl, AReaL, NeMo-RL, ROLL, slime, verl-agent, VLM-R1, EasyR1, MARTI, RLHFuse, ReaL, PUZZLE,
    StreamRL, OPPO, DeepSpeed-Chat, DeepSpeed, Megatron-LM, vLLM, SGLang, Ray, TorchForge, Monarch, TorchStore,
    TorchTitan, OpenEnv, CodeSandbox, BlackJack, Isaac Lab, Isaac Sim, Newton, Omniverse, Cosmos, OSMO, DGX, RTX PRO,
    NVLink, Kubernetes, PE-RLHF, RLinf
"""


def rows() -> list[list[str]]:
    table = PAGE.split("\n## System by system\n")[1]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:2] == "| "]


def test_every_system_has_a_row() -> None:
    named = ", ".join(row[0] for row in rows())
    assert [system for system in " ".join(SYSTEMS.split()).split(", ") if system not in named] == []
    assert all(len(row) == 3 and all(row) for row in rows())


def test_what_it_names_exists() -> None:
    # A fence is three of the marks that begin and end a name.
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`]+)`", prose)
    modules = [span for span in spans if span.startswith("physai.")]
    files = [span for span in spans if span.startswith(("examples/", "docker/"))]
    assert modules
    assert files
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []
    assert [name for name in files if not (ROOT / name).exists()] == []
