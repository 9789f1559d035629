"""Makes the policies that the gates are tested with: trains them, exports them, and puts them beside this script.

    python tests/data/make_policies.py            # those that are missing; about a minute of two cores each
    python tests/data/make_policies.py --all      # every one again
    python tests/data/make_policies.py cartpole-03 reach

Twenty cartpoles from twenty seeds are the honest policies, small ones with two layers of 32; one more drives an arm to
poses. All carry their golden answers. Training is as reproducible as the machine's arithmetic: on another processor
the weights differ in their last digits and the policies are as good.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.train.onnx_export.export import export_policy
from physai.train.runners.checkpoint import load_run

FOLDER = Path(__file__).parent / "policies"
HONEST = 20
PHYSAI = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
"""The command `physai`, of the Python that runs this script."""
KEPT_PROVENANCE = ("task", "seed", "version.physai-sdk", "version.torch", "version.mujoco")
"""What the files say of their origin; the rest tells of the machine."""


@dataclass(frozen=True)
class Recipe:
    """How to train one policy."""

    name: str
    task: str
    seed: int
    settings: tuple[str, ...] = ("hidden=32,32",)


def recipes() -> tuple[Recipe, ...]:
    """All policies."""
    return (
        *(Recipe(f"cartpole-{seed:02d}", "cartpole-swingup", 100 + seed) for seed in range(HONEST)),
        Recipe("reach", "ur10e-reach", 0, settings=()),
    )


def make(recipe: Recipe) -> None:
    """Trains, exports and copies one policy."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        settings = [word for setting in recipe.settings for word in ("--set", setting)]
        words = ["train", recipe.task, "--seed", str(recipe.seed), "--out", str(run), *settings]
        subprocess.run([sys.executable, "-c", PHYSAI, *words], check=True)
        loaded = load_run(run)
        provenance = {key: value for key, value in loaded.provenance.items() if key in KEPT_PROVENANCE}
        export_policy(loaded.graph, loaded.task, FOLDER / recipe.name, provenance=provenance)


def main() -> None:
    """Makes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="policies to make again (default: those that are missing)")
    parser.add_argument("--all", action="store_true", help="make every policy again")
    arguments = parser.parse_args()
    for recipe in recipes():
        folder = FOLDER / recipe.name
        there = (folder / POLICY_FILE).is_file() and (folder / GOLDEN_FILE).is_file()
        if recipe.name in arguments.names or arguments.all or not (there or arguments.names):
            print(recipe.name, flush=True)
            make(recipe)


if __name__ == "__main__":
    main()
