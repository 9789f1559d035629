"""Hashes by content, and a store that takes nothing broken or half-written for a result."""

import hashlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.cluster.workflow.cache.content import content_hash, output_hash
from physai.cluster.workflow.cache.store import Result, ResultStore, stage_key
from physai.cluster.workflow.model import WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError

STAGE = WorkflowStage.model_validate(
    {"command": ["contract", "schema"], "stdout": "a", "outputs": {"a": "a.json", "b": {"path": "b"}}}
)
TREES = st.dictionaries(st.from_regex(r"[a-c]{1,2}(/[a-c]){0,1}", fullmatch=True), st.binary(max_size=4), max_size=5)


def write_tree(folder: Path, tree: dict[str, bytes]) -> dict[str, bytes]:
    """Writes what can be written: a name cannot be a file and a folder."""
    written: dict[str, bytes] = {}
    for name, data in tree.items():
        path = folder / name
        if any(parent.is_file() for parent in path.parents) or path.is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written[name] = data
    return written


@given(TREES, TREES)
def test_folders_have_the_same_hash_exactly_if_they_have_the_same_files(
    left: dict[str, bytes], right: dict[str, bytes]
) -> None:
    with TemporaryDirectory() as folder:
        (a := Path(folder) / "a").mkdir()
        (b := Path(folder) / "b").mkdir()
        left, right = write_tree(a, left), write_tree(b, dict(reversed(right.items())))
        assert (content_hash(a) == content_hash(b)) == (left == right)


def test_the_hash_of_a_file_is_that_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"abc")
    os.utime(tmp_path / "b", (1, 1))
    (tmp_path / "b").chmod(0o400)
    inner = hashlib.sha256(b"abc").digest()
    assert content_hash(tmp_path / "a") == hashlib.sha256(b"file\0" + inner).hexdigest()
    assert content_hash(tmp_path / "b") == content_hash(tmp_path / "a")


def test_links_and_pipes_have_none(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to("/etc/hostname")
    with pytest.raises(WorkflowError, match="symbolic link"):
        content_hash(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkflowError, match="not a regular file"):
        content_hash(tmp_path / "pipe")
    with pytest.raises(WorkflowError, match="no such file"):
        content_hash(tmp_path / "missing")


def stored(store: ResultStore, key: str = "0" * 64) -> Result:
    fresh = store.begin("stage")
    (fresh / "outputs" / "a.json").write_bytes(b"{}")
    (fresh / "outputs" / "b").mkdir()
    (fresh / "outputs" / "b" / "c").write_bytes(b"123")
    hashes = {name: content_hash(fresh / "outputs" / output.path) for name, output in STAGE.outputs.items()}
    result = Result(key=key, stage="stage", exit_code=0, seconds=1.0, hashes=hashes)
    store.commit(fresh, result)
    return result


@settings(max_examples=40)
@given(st.data())
def test_a_result_that_differs_in_one_byte_is_none_and_can_be_made_again(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        store = ResultStore(Path(folder))
        result = stored(store)
        assert store.find(result.key, STAGE) == result
        files = sorted(path for path in (Path(folder) / "cache").rglob("*") if path.is_file())
        path = data.draw(st.sampled_from(files))
        content = path.read_bytes()
        damage = data.draw(st.sampled_from(("flip", "cut", "grow", "remove")))
        position = data.draw(st.integers(0, len(content) - 1))
        if damage == "flip":
            path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        elif damage == "cut":
            path.write_bytes(content[:position])
        elif damage == "grow":
            path.write_bytes(content + b"x")
        else:
            path.unlink()
        found = store.find(result.key, STAGE)
        # Of the record only what a result depends on counts: its duration, say, may be another.
        assert found is None or (
            path.name == "result.json" and found.hashes == result.hashes and found.key == result.key
        )
        stored(store)
        assert store.find(result.key, STAGE) == result


def test_what_was_not_committed_is_no_result_and_is_removed(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    (store.begin("stage") / "outputs" / "a.json").write_bytes(b"{}")
    assert store.find("0" * 64, STAGE) is None
    with store.locked():
        assert list((tmp_path / "new").iterdir()) == []


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        ResultStore(tmp_path).locked(),
        pytest.raises(WorkflowError, match=r"another .* uses .*; wait for it, or give `folder`"),
        ResultStore(tmp_path).locked(),
    ):
        pass
    with ResultStore(tmp_path).locked():
        pass


def test_the_newest_result_is_linked(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for key in ("0" * 64, "1" * 64):
        store.publish(stored(store, key))
        assert (tmp_path / "results" / "stage").resolve() == tmp_path / "cache" / key / "outputs"


def test_a_key_depends_on_commands_inputs_and_outputs_only() -> None:
    def key(inputs: dict[str, tuple[str, str]] | None = None, **fields: object) -> str:
        stage = WorkflowStage.model_validate({"command": ["doctor"], "outputs": {"a": "a"}, **fields})
        return stage_key(stage, inputs or {"log": ("log.csv", "0")})

    same = key()
    assert key(retries=3) == key(resources={"cpus": 2}) == key(image="train") == same
    others = [
        key(command=["doctor", "--json"]),
        key(stdout="a"),
        key(outputs={"a": "b"}),
        key(exit_codes=[0, 1]),
        key({"log": ("log.csv", "1")}),
        key({"log": ("log.json", "0")}),
        key({"recording": ("log.csv", "0")}),
    ]
    assert len({same, *others}) == 8


@pytest.mark.parametrize("place", ["", "outputs", "outputs/a.json", "outputs/b"])
def test_a_link_in_place_of_a_result_is_none_even_if_its_target_is_the_same(place: str, tmp_path: Path) -> None:
    """A link's target could be changed later, and the result with it."""
    store = ResultStore(tmp_path / "run")
    result = stored(store)
    path = tmp_path / "run" / "cache" / result.key / place
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.find(result.key, STAGE) is None
    assert not os.path.lexists(tmp_path / "run" / "cache" / result.key)
    assert os.path.lexists(tmp_path / "elsewhere")
    stored(store)
    assert store.find(result.key, STAGE) == result


def test_no_output_leads_out_of_its_folder_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("x")
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "fresh" / "file").symlink_to(tmp_path / "outside" / "file")
    for relative in ("link/file", "link", "file"):
        with pytest.raises(WorkflowError, match="symbolic link, whose content may change"):
            output_hash(tmp_path / "fresh", relative)
