"""Gate settings: what is left out keeps its default, and what could not fail is refused."""

from pathlib import Path

import pytest

from physai.gates.settings import GateSettings, GateSettingsError, load_gates


def written(path: Path, text: str) -> Path:
    file = path / "gates.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("text", ["", "{}", "success:\n  target: 0.9\n"])
def test_what_is_left_out_keeps_its_default(tmp_path: Path, text: str) -> None:
    settings = load_gates(written(tmp_path, text))
    assert settings == GateSettings()
    assert settings.sha256 == GateSettings().sha256


def test_another_threshold_is_another_hash(tmp_path: Path) -> None:
    settings = load_gates(written(tmp_path, "success:\n  target: 0.8\nalpha: 0.01\n"))
    assert (settings.success.target, settings.alpha) == (0.8, 0.01)
    assert settings.sha256 != GateSettings().sha256


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "success: {target: 0.0}",
            r"success.target: 0 is a threshold that every policy, or none, passes; give 0.5 to 0.999",
        ),
        ("success: {target: 1.0}", "success.target: 1 is a threshold"),
        ("robustness: {measured: {target: 0.05}}", r"robustness.measured.target: 0.05 is a threshold"),
        ("parity: {relative_tolerance: .inf}", "parity.relative_tolerance: Input should be a finite number"),
        ("parity: {relative_tolerance: .nan}", "parity.relative_tolerance: Input should be a finite number"),
        ("parity: {relative_tolerance: 5.0}", "parity.relative_tolerance: 5 would accept every error"),
        ("engine: {tolerance: 100.0}", "engine.tolerance: 100 would accept every error"),
        ("engine: {episodes: 0}", "engine.episodes: 0 episodes compare nothing"),
        ("success: {max_episodes: 0}", "success.max_episodes: 0 episodes decide nothing"),
        ("success: {max_episodes: 20}", "success: max_episodes: 20 episodes cannot decide a target of 0.9"),
        (
            "safety: {max_episodes: 30}",
            "safety.max_episodes: 30 episodes without a violation do not exclude a rate of 0.04",
        ),
        ("safety: {rate: 1.0}", "safety.rate: 1 is a violation rate that is unacceptable"),
        ("non_inferiority: {margin: 1.0}", "non_inferiority.margin: 1 makes the comparison meaningless"),
        ("falsification: {generations: 0}", "falsification.generations: 0 generations search nothing"),
        ("latency: {max_miss_share: 1.0}", "latency.max_miss_share: 1 accepts misses that no guard can bridge"),
        ("alpha: 1.0", "alpha: 1 is an error rate"),
        ("batch: 0", "batch: 0 worlds at once"),
        ("succes: {target: 0.9}", "succes: unknown setting"),
        ("success: {target: high}", "success.target: Input should be a valid number"),
        ("success: {target: 0.9, target: 0.5}", "'target' occurs twice"),
        ("- 1", "expected sections such as"),
        ("{", "not YAML"),
        ("!!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_a_gate_that_could_not_fail_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(GateSettingsError, match=message):
        load_gates(written(tmp_path, text))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GateSettingsError, match="cannot be read: no such file"):
        load_gates(tmp_path / "none.yaml")
    with pytest.raises(GateSettingsError, match="more than 65536 bytes"):
        load_gates(written(tmp_path, "#" * 70_000))


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(GateSettingsError) as refused:
        load_gates(written(tmp_path, "success: {target: 0.0}\nengine: {episodes: 0}\n"))
    assert "success.target" in str(refused.value)
    assert "engine.episodes" in str(refused.value)
