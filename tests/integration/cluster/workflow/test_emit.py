"""What is emitted for KubeRay and OSMO: golden files, refusals, and the projects' own validators if there.

To run the optional tests, name a checkout of https://github.com/ray-project/kuberay in PHYSAI_KUBERAY, one of
https://github.com/NVIDIA/OSMO in PHYSAI_OSMO, and in PHYSAI_OSMO_PYTHON a Python 3.12 with what OSMO's
`src/utils/job/workflow.py` imports.
"""

import copy
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
import yaml
from tests.support.contract_workflows import write_workflow
from tests.support.workflow_runs import PROGRAM

from physai.cluster.workflow.emit.osmo import exit_ranges
from physai.sdk.cli.main import main

DATA = Path(__file__).parents[3] / "data" / "workflows"
WORKFLOW = DATA / "workflow.yaml"
EXAMPLE = Path(__file__).parents[4] / "examples" / "workflow.yaml"
OSMO = ["--storage", "s3://bucket/walk", "--platform", "linux/amd64=dgx", "--platform", "linux/arm64=agx-orin-jp6"]
GOLDEN = {
    "kuberay.yaml": ["kuberay", "--per-stage", "--claim", "robots", "--ray-version", "2.60.0"],
    "osmo.yaml": ["osmo", *OSMO],
}
OSMO_PROGRAM = """
import sys, yaml
sys.path.insert(0, sys.argv[1])
from src.utils.job import workflow
spec = workflow.VersionedWorkflowSpec(**yaml.safe_load(sys.stdin))
print(spec.workflow.name)
"""


@pytest.fixture
def one_image(tmp_path: Path) -> Path:
    """The workflow without its stage on another platform."""
    document = yaml.safe_load(WORKFLOW.read_text())
    del document["stages"]["measure"]
    (tmp_path / "walk.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "walk.yaml"


def emitted(capsys: pytest.CaptureFixture[str], file: Path, *words: str) -> str:
    assert main(["workflow", "emit", words[0], str(file), *words[1:]]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def documents(text: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", list(yaml.safe_load_all(text)))


def per_stage(path: Path) -> Path:
    """The workflow with one image for the gang, whose members are containers of one pod on KubeRay."""
    document = yaml.safe_load(WORKFLOW.read_text())
    del document["stages"]["measure"]["members"][1]["image"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = per_stage(tmp_path / "workflow.yaml") if name == "kuberay.yaml" else WORKFLOW
    assert emitted(capsys, file, *GOLDEN[name]) == (DATA / name).read_text()


def test_one_job_has_the_most_that_a_stage_asks_for(one_image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = documents(emitted(capsys, one_image, "kuberay"))
    container = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    # One CPU and 2 GiB more than the stages, for Ray: 8 + 1, and (32 + 2) · 1024.
    assert container["resources"]["limits"] == {"cpu": "9", "memory": "34816Mi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert job["spec"]["entrypoint"].endswith("/runs/walk --cpus 8 --gpus 1 --memory 32768Mi")
    assert job["spec"]["shutdownAfterJobFinishes"] is True


@pytest.mark.parametrize(
    ("version", "auth"), [("2.51.9", None), ("2.52.0", {"mode": "token"}), ("3.0.0", {"mode": "token"})]
)
def test_tokens_from_the_first_ray_that_has_them(
    version: str, auth: Any, one_image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job,) = documents(emitted(capsys, one_image, "kuberay", "--ray-version", version))
    assert job["spec"]["rayClusterSpec"].get("authOptions") == auth


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kuberay"], "a RayJob has one image, but stage calibrate has registry.example.org/physai-train:0.1.0"),
        (["kuberay", "--per-stage"], "a RayJob has one image, but stage measure has"),
        (["kuberay", "--ray-version", "2"], "Ray version '2' is not MAJOR.MINOR.PATCH, as 2.60.0 is"),
        (["kuberay", "--claim", "My Claim"], "got 'My Claim'"),
        (["kuberay", "--storage", "s3://b"], "--storage is an option of emit osmo, not of kuberay"),
        (["osmo"], "emit osmo needs --storage, a URL such as s3://bucket/folder, got none"),
        (
            ["osmo", "--storage", "s3://b"],
            "stage train runs on linux/amd64, which every pool of OSMO names its own way",
        ),
        (["osmo", *OSMO, "--platform", "linux/riscv=x"], "got 'linux/riscv'"),
        (["osmo", *OSMO, "--per-stage"], "--per-stage is an option of emit kuberay, not of osmo"),
    ],
)
def test_refusals(words: list[str], message: str, one_image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = one_image if "--ray-version" in words else WORKFLOW
    assert main(["workflow", "emit", words[0], str(file), *words[1:]]) == 2
    assert message in capsys.readouterr().err


def test_a_stage_without_an_image_is_for_no_cluster(one_image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load(one_image.read_text())
    del document["stages"]["export"]["image"]
    one_image.write_text(yaml.safe_dump(document))
    for words in (["kuberay"], ["osmo", *OSMO]):
        assert main(["workflow", "emit", words[0], str(one_image), *words[1:]]) == 2
        assert "stage export has no image, which a cluster needs" in capsys.readouterr().err


def test_the_script_of_a_task_does_what_a_run_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OSMO's task copies the input, makes folders and stores what is printed, with paths that a shell would split."""
    (document,) = documents(emitted(capsys, WORKFLOW, "osmo", *OSMO))
    tasks = {task["name"]: task for group in document["workflow"]["groups"] for task in group["tasks"]}
    task = tasks["export"]
    given, output = tmp_path / "in put", tmp_path / "out put"
    (given / "run").mkdir(parents=True)
    (given / "run" / "weights").write_text("w")
    output.mkdir()
    (tmp_path / "physai").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "physai").chmod(0o755)
    words = [
        word.replace("{{input:0}}", str(given)).replace("{{output}}", str(output))
        for word in [*task["command"], *task["args"]]
    ]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(words, check=True, env={"PATH": path}, timeout=60)
    assert (output / "run" / "weights").read_text() == "w"
    assert (output / "report.json").read_text() == f"export {output}/run --json\n"


def test_exit_codes_as_osmo_writes_them() -> None:
    assert exit_ranges((0,)) == "0"
    assert exit_ranges((5, 1, 0)) == "0-1,5"
    assert exit_ranges(set(range(1, 256)) - {3}) == "1-2,4-255"


def test_json_and_a_file(one_image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = documents(emitted(capsys, one_image, "kuberay"))
    assert json.loads(emitted(capsys, one_image, "kuberay", "--json")) == job
    assert emitted(capsys, one_image, "kuberay", "--out", str(tmp_path / "job.yaml")) == ""
    assert documents((tmp_path / "job.yaml").read_text()) == [job]


def test_words_and_names_survive_a_pipe_with_another_encoding(tmp_path: Path) -> None:
    """Words that a shell, YAML or Jinja would change, printed where only ASCII can be."""
    odd = [
        "--note",
        "Grüße 机器人 'a' \"b\" $(id) `id` ; # & %7B}} !x",
        "--note",
        "- no: list",
        "--note",
        "0x10",
        "--note",
        "",
    ]
    stage = {
        "command": ["bundle", "pack", "run", "--out", "${outputs.bundle}", *odd],
        "image": "train",
        "outputs": {"bundle": "a b/c.physai"},
    }
    images = {"train": {"name": "registry.example.org/train:1", "platforms": ["linux/amd64"]}}
    # As long as names may be: 22 and 24 characters, which makes 47 in KubeRay's.
    name, long = "w" * 22, "s" * 24
    file = write_workflow(tmp_path / "Datei 机器.yaml", {long: stage}, name=name, images=images)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    def printed(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-c", PROGRAM, "workflow", "emit", words[0], str(file), *words[1:]]
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        return yaml.safe_load(done.stdout.decode("ascii"))

    (task,) = printed("osmo", *OSMO)["workflow"]["tasks"]
    assert task["args"][-len(odd) :] == odd
    job = printed("kuberay", "--per-stage")
    assert job["metadata"]["name"] == f"{name}-{long}"
    assert len(job["metadata"]["name"]) == 47
    assert shlex.split(job["spec"]["entrypoint"])[3] == "/workflow/Datei 机器.yaml"


def checkout(variable: str, url: str) -> Path:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} names no checkout of {url}")
    return Path(folder)


def strict(schema: Any) -> None:
    """Forbids fields that a schema does not list, as the API server drops them without a word."""
    if isinstance(schema, dict):
        record = cast("dict[str, Any]", schema)
        if "properties" in record and not record.get("x-kubernetes-preserve-unknown-fields"):
            record.setdefault("additionalProperties", False)
        for value in record.values():
            strict(value)


def kuberay(name: str) -> Any:
    """A validator by one of KubeRay's resource definitions."""
    folder = checkout("PHYSAI_KUBERAY", "https://github.com/ray-project/kuberay")
    definition = yaml.safe_load((folder / f"ray-operator/config/crd/bases/ray.io_{name}.yaml").read_text())
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    schema = version["schema"]["openAPIV3Schema"]
    strict(schema["properties"]["spec"])
    return cast("Any", jsonschema.Draft202012Validator(schema))


def test_kuberays_own_schema_accepts_the_cluster() -> None:
    validator = kuberay("rayclusters")
    cluster = documents((EXAMPLE.parents[1] / "docker/kubernetes/ray/cluster.yaml").read_text())[0]
    assert [error.message for error in validator.iter_errors(cluster)] == []
    cluster["spec"]["workerGroupSpec"] = cluster["spec"].pop("workerGroupSpecs")
    assert list(validator.iter_errors(cluster))


def test_kuberays_own_schema_accepts_the_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validator = kuberay("rayjobs")
    walk = emitted(capsys, per_stage(tmp_path / "workflow.yaml"), *GOLDEN["kuberay.yaml"])
    jobs = [*documents(walk), *documents(emitted(capsys, EXAMPLE, "kuberay"))]
    assert len(jobs) == 5
    for job in jobs:
        assert [error.message for error in validator.iter_errors(job)] == []
        misspelt = copy.deepcopy(job)
        misspelt["spec"]["entryPoint"] = misspelt["spec"].pop("entrypoint")
        assert list(validator.iter_errors(misspelt))


def test_osmos_own_models_accept_the_workflows(capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkout("PHYSAI_OSMO", "https://github.com/NVIDIA/OSMO")
    python = os.environ.get("PHYSAI_OSMO_PYTHON") or pytest.skip("PHYSAI_OSMO_PYTHON names no Python for OSMO's models")

    def validated(text: str) -> subprocess.CompletedProcess[str]:
        command = [python, "-c", OSMO_PROGRAM, str(folder)]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300)

    for file, name in ((WORKFLOW, "walk"), (EXAMPLE, "cartpole-swingup")):
        text = emitted(capsys, file, *GOLDEN["osmo.yaml"])
        done = validated(text)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{name}\n"
        assert validated(text.replace("resource:", "resorce:")).returncode == 1


@pytest.mark.parametrize("target", ["kuberay", "osmo"])
def test_the_digest_of_an_image_reaches_its_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    digest = "sha256:" + "3" * 64
    stage = {"image": "train", "command": ["tasks"], "stdout": "said", "outputs": {"said": "said.txt"}}
    document = {"format_version": 1, "name": "one", "stages": {"list": stage}}
    for tag, expected in ((f"physai-train@{digest}", digest), ("physai-train:0.1.0", None)):
        images = {"train": {"name": tag, "platforms": ["linux/amd64"]}}
        (tmp_path / "one.yaml").write_text(yaml.safe_dump({**document, "images": images}))
        options = ["--claim", "robots"] if target == "kuberay" else OSMO
        (emitted_one,) = documents(emitted(capsys, tmp_path / "one.yaml", target, *options))
        if target == "kuberay":
            head = emitted_one["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
            found = {one["name"]: one["value"] for one in head.get("env", [])}
        else:
            found = emitted_one["workflow"]["tasks"][0].get("environment", {})
        assert found == ({} if expected is None else {"PHYSAI_IMAGE_DIGEST": expected})
