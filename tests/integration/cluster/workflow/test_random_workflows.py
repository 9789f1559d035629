"""Promise: a run executes exactly the stages whose inputs, however far up, changed since they last succeeded, and takes
no broken or half-written output for a result.

Random workflows of real stages go through random edits, damage and kills. A model keeps a symbol for every output and
says which stages have to run; it knows nothing of hashes.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.contract_workflows import compare, show, write_contract, write_workflow

from physai.cluster.workflow.cache.store import ResultStore
from physai.cluster.workflow.executors.local import Here
from physai.cluster.workflow.executors.resources import ResourceLimits
from physai.cluster.workflow.lint import require_sound
from physai.cluster.workflow.runner import WorkflowRun
from physai.cluster.workflow.workflow_file import load_workflow

PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
FILES = ("x.json", "y.json")
Symbol = tuple[Any, ...]


class Model:
    """A workflow as its author thinks of it: contracts by task name, and stages that pass on or compare them."""

    def __init__(self, folder: Path, shapes: list[tuple[int, int]]) -> None:
        self.folder = folder
        self.tasks: dict[str, str] = dict.fromkeys(FILES, "zero")
        self.shapes = shapes
        self.flags = [True] * len(shapes)
        self.succeeded: dict[Symbol, tuple[str, Symbol]] = {}
        """Folder in the cache and what was printed, by what a result depends on."""
        self.write()

    def source(self, index: int, number: int) -> dict[str, str]:
        """Input of a stage: one of the files, or the contract or report of an earlier stage that compares."""
        earlier = [i for i in range(index) if self.compares(i)]
        choices = [*FILES, *(f"s{i}.contract" for i in earlier)]
        chosen = choices[number % len(choices)]
        return {"path": chosen} if chosen in FILES else {"from": chosen}

    def compares(self, index: int) -> bool:
        return self.shapes[index][0] % 3 > 0

    def write(self) -> None:
        stages: dict[str, Any] = {}
        for index, (first, second) in enumerate(self.shapes):
            left, right = self.source(index, first), self.source(index, second)
            stage = compare(left, right) if self.compares(index) else show(left)
            if not self.flags[index]:
                stage["command"] = stage["command"][:-1]
            # What an earlier stage printed counts too, although the command does not read it.
            if index:
                stage["inputs"]["before"] = {"from": f"s{index - 1}.said"}
            stages[f"s{index}"] = stage
        self.stages = stages
        for file, task in self.tasks.items():
            write_contract(self.folder / file, task)
        self.file = write_workflow(self.folder / "workflow.yaml", stages)

    def symbols(self) -> dict[str, tuple[Symbol, Symbol]]:
        """What each stage's result depends on, and what it prints."""
        found: dict[str, tuple[Symbol, Symbol]] = {}
        contents: dict[str, Symbol] = {}
        for name, stage in self.stages.items():
            read = {
                key: ((given["path"], self.tasks[given["path"]]) if "path" in given else contents[given["from"]])
                for key, given in stage["inputs"].items()
            }
            symbol = (tuple(stage["command"]), tuple(sorted((key, str(value)) for key, value in read.items())))
            # A comparison prints the paths of its inputs, which have the names of the stage, the input and the file.
            where = tuple(
                (name, key, given.get("path") or "contract.json")
                for key, given in sorted(stage["inputs"].items())
                if key in ("left", "right")
            )
            shown = [value[1] for key, value in sorted(read.items()) if key != "before"]
            contents[f"{name}.contract"] = ("contract.json", shown[0])
            # Of equal contracts the text says that they are equal, and not where they are.
            silent = "--json" not in stage["command"] and len(set(shown)) == 1
            said: Symbol = (tuple(stage["command"]), tuple(shown), () if silent else where)
            # An earlier result says where its inputs were then.
            found[name] = (symbol, self.succeeded[symbol][1] if symbol in self.succeeded else said)
            contents[f"{name}.said"] = ("said.json", found[name][1])
        return found

    def expected(self) -> set[str]:
        """Stages that have to run."""
        have, runs = set(self.succeeded), set[str]()
        for name, (symbol, _) in self.symbols().items():
            if symbol not in have:
                runs.add(name)
                have.add(symbol)
        return runs

    def remember(self, name: str) -> None:
        """Notes that a stage has a result."""
        symbol, said = self.symbols()[name]
        self.succeeded[symbol] = (self.folder_of(name), said)

    def folder_of(self, name: str) -> str:
        return (self.folder / "run" / "results" / name).resolve().parent.name

    def run(self) -> set[str]:
        """Runs the workflow and returns the stages that were executed."""
        workflow = load_workflow(self.file)
        require_sound(workflow, self.file)
        store = ResultStore(self.folder / "run")
        limits = ResourceLimits(cpus=2, gpus=0, memory_bytes=1 << 40)
        with store.locked():
            reports = WorkflowRun(workflow, self.folder, store, Here(limits), lambda _: None).run()
        assert {report.state for report in reports} <= {"done", "cached"}, reports
        return {report.stage for report in reports if report.state == "done"}

    def check_results(self) -> None:
        """The results are those of a run from nothing: what each stage says is about the contracts as they are now."""
        contracts: dict[str, str] = {**self.tasks}
        for name, stage in self.stages.items():
            first = stage["inputs"].get("left") or stage["inputs"]["contract"]
            task = contracts[first.get("path") or first["from"]]
            results = self.folder / "run" / "results" / name
            if self.compares(int(name[1:])):
                contracts[f"{name}.contract"] = task
                assert json.loads((results / "contract.json").read_text())["task"] == task
            said = (results / "said.json").read_text()
            if "--json" in stage["command"] and "contract" in stage["inputs"]:
                assert json.loads(said)["contract"]["task"] == task
            elif "--json" in stage["command"]:
                right = stage["inputs"]["right"]
                assert json.loads(said)["same"] == (contracts[right.get("path") or right["from"]] == task)

    def damage(self, pick: int) -> None:
        """Flips a byte of one result's output, cuts it or removes it."""
        outputs = sorted(path for path in (self.folder / "run" / "cache").glob("*/outputs/*") if path.is_file())
        if not outputs:
            return
        path = outputs[pick % len(outputs)]
        content = path.read_bytes()
        how = pick % 3
        if how == 0:
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif how == 1:
            path.write_bytes(content[: len(content) // 2])
        else:
            path.unlink()
        broken = path.parents[1].name
        self.succeeded = {symbol: result for symbol, result in self.succeeded.items() if result[0] != broken}

    def kill(self, after: int) -> None:
        """Starts a run and kills it once it has printed some lines; what it said to be done has a result."""
        words = ["workflow", "run", str(self.file), "--folder", str(self.folder / "run"), "--cpus", "2"]
        with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                if len(said) > after:
                    break
            process.send_signal(signal.SIGKILL)
            said += process.stderr.readlines()
        for line in said:
            if " done in " in line or line.endswith(" cached\n"):
                self.remember(line.split(":")[0])


STEPS = st.lists(
    st.tuples(st.sampled_from(("file", "file", "flag", "rewire", "damage", "kill", "none")), st.integers(0, 1 << 20)),
    min_size=1,
    max_size=4,
)
SHAPES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=5)


def edit(model: Model, kind: str, pick: int) -> bool:
    """Makes one edit; returns whether which results are there is known exactly."""
    if kind == "file":
        model.tasks[FILES[pick % 2]] = ("zero", "one", "two")[pick // 2 % 3]
    elif kind == "flag":
        model.flags[pick % len(model.flags)] ^= True
    elif kind == "rewire":
        index = pick % len(model.shapes)
        # Whether it compares stays, because later stages may read its copy.
        first, _ = model.shapes[index]
        model.shapes[index] = (first, pick // 7 % 12)
    model.write()
    if kind == "damage":
        model.damage(pick)
    elif kind == "kill":
        model.kill(pick % (2 * len(model.shapes)))
        return False
    return True


def play(shapes: list[tuple[int, int]], steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        model = Model(Path(folder), shapes)
        for kind, pick in [("none", 0), *steps]:
            exact = edit(model, kind, pick)
            expected, ran = model.expected(), model.run()
            # A killed run may have completed a stage that it had no time to report.
            assert ran == expected if exact else ran <= expected, (kind, model.stages)
            for name in model.stages:
                model.remember(name)
            model.check_results()
            assert model.run() == set()


@pytest.mark.slow
def test_a_changed_input_far_up_that_changes_no_output_in_between() -> None:
    """The stage after the second one reads a report that says the same as before."""
    play([(2, 1), (2, 0), (0, 0)], [("file", 3)])


@pytest.mark.slow
def test_a_workflow_through_every_kind_of_edit() -> None:
    play(
        [(1, 1), (2, 2), (0, 0), (4, 3)],
        [("file", 3), ("flag", 1), ("rewire", 4), ("damage", 4), ("kill", 2), ("file", 1)],
    )


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(SHAPES, STEPS)
@example([(0, 0), (5, 0), (11, 0), (0, 0)], [("flag", 0)])
def test_a_run_executes_exactly_what_changed(shapes: list[tuple[int, int]], steps: list[tuple[str, int]]) -> None:
    play(shapes, steps)
