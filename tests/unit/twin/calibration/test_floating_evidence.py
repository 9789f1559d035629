"""What judges a twin works for floating bases: encoder offsets, changed twins, replayed samples, friction models."""

import copy
import math
import pickle
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.fixtures_calibration import changed_model
from tests.support.floating import HOPPER, HOPPER_FRICTION, dropped, fitted
from tests.support.tossed_cube import CONTACT_TIME, FRICTION, RESTITUTION, cube, throws

from physai.sdk.base.errors import PhysaiError
from physai.sim.robots import Robot, load_robot
from physai.twin.calibration import alternatives
from physai.twin.calibration.alternatives import model_alternatives
from physai.twin.calibration.calibrate import residuals
from physai.twin.calibration.fit.friction_choice import Search, compare, fit_friction
from physai.twin.calibration.fit.problem import Problem
from physai.twin.calibration.replay.replay import ReplayScore, replay, score_record, windows_of
from physai.twin.calibration.replay.sample import replay_sample
from physai.twin.calibration.stand_in.excitation import design_excitation
from physai.twin.claims.changes import MAX_SINGLE_JOINTS, model_changes
from physai.twin.claims.spot_check import WINDOWS, spot_check
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, load_twin, save_twin
from physai.twin.model.twin_file import MAX_ALTERNATIVES, Alternative, Interval
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import Parameter, catalogue

Array = NDArray[np.float64]

TRUTH = {FRICTION: 0.3, RESTITUTION: 0.4, CONTACT_TIME: 0.03}


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    return cube(tmp_path_factory.mktemp("cube"))


@pytest.fixture(scope="module")
def thrown(body: Robot) -> list[RobotLog]:
    return throws(body, TRUTH, count=5, seed=1)


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path = tmp_path_factory.mktemp("hopper") / "hopper.xml"
    path.write_text(HOPPER)
    return load_robot(path)


def judged(robot: Robot, twin: Twin, logs: list[RobotLog]) -> tuple[Twin, ReplayScore]:
    """The twin with what a calibration states of held-out recordings."""
    score, nominal = replay(twin, robot, logs), replay(calibration_model(robot), robot, logs)
    return replace(twin, residuals=residuals(score, nominal), sample=replay_sample(twin, robot, score)), score


class TestOffsets:
    def test_a_body_without_joints_has_none(self, body: Robot, thrown: list[RobotLog]) -> None:
        found = replay(changed_model(body, TRUTH), body, thrown)
        assert found.offsets.shape == found.offset_std.shape == (5, 0)
        assert score_record(found)["joint_pos_offset"] == {log.name: {} for log in thrown}

    def test_those_of_joints_are_found_beside_a_pose(self, hopper: Robot) -> None:
        """Encoder and target are off by 0.03 rad. The floor shows it: the leg is where they say that it is not."""
        log = dropped(hopper, HOPPER_FRICTION)
        shifted = replace(log, joint_pos=log.joint_pos + 0.03, command=log.command + 0.03)
        right, found = (replay(changed_model(hopper, HOPPER_FRICTION), hopper, [one]) for one in (log, shifted))
        assert right.offsets[0] == pytest.approx([0.0], abs=2e-3)
        assert found.offsets[0] == pytest.approx([0.03], abs=0.01)
        assert set(score_record(found)["joint_pos_offset"]["drop"]) == {"hip"}
        # Without the offset the joint would err by most of 0.03 rad.
        assert found.effects.rmse[2] > 0.015
        assert found.rmse[2].value < 0.6 * found.effects.rmse[2]


class TestSamples:
    def test_of_a_thrown_body_are_replayed_from_the_file(
        self, body: Robot, thrown: list[RobotLog], tmp_path: Path
    ) -> None:
        twin, score = judged(body, fitted(body, TRUTH), thrown)
        assert twin.sample is not None
        assert len(twin.sample.start) == WINDOWS
        save_twin(twin, tmp_path / "twin.json")
        loaded = load_twin(tmp_path / "twin.json")
        assert spot_check(loaded, body) == ""
        # Errors of the same windows, as the replay of recordings computes them.
        chosen = np.linspace(0, len(score.windows) - 1, WINDOWS).round().astype(np.int64)
        assert twin.sample.rmse == pytest.approx(np.sqrt(score.squared[chosen].mean(axis=0)), rel=1e-6)
        slippery = fitted(body, {**TRUTH, FRICTION: 0.15})
        said = spot_check(replace(loaded, parameters=slippery.parameters), body)
        assert said.startswith("base.position: 8 of its held-out windows replay with an error of")
        assert "was changed after the calibration" in said

    def test_of_a_legged_robot_have_its_pose_and_its_joints(self, hopper: Robot) -> None:
        twin, score = judged(hopper, fitted(hopper, HOPPER_FRICTION), [dropped(hopper, HOPPER_FRICTION)])
        assert twin.sample is not None
        assert np.array(twin.sample.start).shape == (len(score.windows), 8 + 7)
        assert twin.sample.rmse == pytest.approx(np.sqrt(score.squared.mean(axis=0)), rel=1e-6)
        assert spot_check(twin, hopper) == ""

    def test_with_errors_of_other_quantities_are_refused(self, body: Robot, thrown: list[RobotLog]) -> None:
        twin, _ = judged(body, fitted(body, TRUTH), thrown)
        assert twin.sample is not None
        short = twin.sample.model_copy(update={"rmse": (0.1,)})
        assert "errors of 2 quantities and a sample with 1, its robot has 2" in spot_check(
            replace(twin, sample=short), body
        )


class TestChangedTwins:
    def test_a_free_body_keeps_its_mass_and_changes_its_contacts(self, body: Robot, hopper: Robot) -> None:
        contacts = {f"{word} the {what}" for word in ("half", "twice") for what in ("restitution", "contact time")}
        contacts |= {"half the sliding friction", "twice the sliding friction"}
        names = {name for name, _ in model_changes(fitted(body, TRUTH).model(), {})}
        assert names == contacts
        legged = {name for name, _ in model_changes(calibration_model(hopper), {})}
        assert legged > contacts | {"all masses x 1.1"}
        arm = {name for name, _ in model_changes(calibration_model(load_robot("ur10e")), {})}
        assert not arm & contacts

    def test_a_joint_with_less_friction_than_plausible_is_tried_with_more(self) -> None:
        """Joint by joint: 1 N·m is plausible for both, one has 0.2 N·m and the other none."""
        model = calibration_model(load_robot("double_pendulum"))
        one, other = (str(model.joint(number).name) for number in range(2))
        model.dof_frictionloss[:] = 0.2, 0.0
        changes = dict(model_changes(model, {f"{one}.friction": 1.0, f"{other}.friction": 1.0}))
        found: dict[str, list[float]] = {}
        for name in (name for name in changes if name.startswith("friction of ")):
            changed = copy.copy(model)
            changes[name](changed)
            found[name] = [round(float(value), 6) for value in changed.dof_frictionloss]
        assert found == {
            f"friction of {one} + 0.3": [0.5, 0.0],
            f"friction of {one} + 1": [1.2, 0.0],
            f"friction of {other} + 0.1": [0.2, 0.1],
            f"friction of {other} + 0.3": [0.2, 0.3],
            f"friction of {other} + 1": [0.2, 1.0],
        }

    def test_the_longest_names_fit_into_the_record(self) -> None:
        """Names of joints have up to 64 characters, robots up to dozens of joints."""
        Alternative(name=f"friction of {'j' * 64} + 0.000123", ratio=Interval(value=1.0, lo=1.0, hi=1.0))
        robot = load_robot("ur10e")
        plausible = {f"{joint}.{what}": 1e3 for joint in robot.spec.joint_names for what in ("friction", "damping")}
        names = [name for name, _ in model_changes(calibration_model(robot), plausible)]
        assert sum(name.startswith("friction of ") for name in names) == 18
        assert 2 * 3 * MAX_SINGLE_JOINTS + 20 <= MAX_ALTERNATIVES

    @pytest.mark.slow
    def test_throws_prefer_the_truth(self, body: Robot, thrown: list[RobotLog]) -> None:
        def ratios(values: dict[str, float]) -> dict[str, tuple[float, float]]:
            twin = fitted(body, values)
            model = twin.model()
            score = replay(twin, body, thrown)
            found = model_alternatives(body, twin, model, score, num_threads=1)
            return {one.name: (one.ratio.lo, one.ratio.hi) for one in found}

        assert all(lo > 1.0 for lo, _ in ratios(TRUTH).values())
        assert ratios({**TRUTH, FRICTION: 0.15})["twice the sliding friction"][1] < 0.95
        assert ratios({**TRUTH, RESTITUTION: 0.8})["half the restitution"][1] < 0.95
        assert ratios({**TRUTH, CONTACT_TIME: 0.06})["half the contact time"][1] < 0.95

    def test_a_worker_elsewhere_finds_the_same(self, body: Robot, thrown: list[RobotLog]) -> None:
        """What it is sent is pickled, and it simulates with one thread."""
        twin = fitted(body, TRUTH)
        model, score = twin.model(), replay(twin, body, thrown)
        here = model_alternatives(body, twin, model, score, num_threads=2)
        sent = alternatives.Replays(body, twin, model, score, num_threads=1)
        elsewhere = pickle.loads(pickle.dumps(sent))
        assert alternatives.model_alternative(elsewhere, len(here) - 1) == here[-1]
        assert alternatives.model_alternative(elsewhere, 0) == here[0]

    def test_changes_stay_within_the_bounds_of_the_parameters(self, body: Robot) -> None:
        """Restitution ends at 0.95, so twice 0.6 is 0.95: z of 0.95 is about 0.0163."""
        model = fitted(body, {**TRUTH, RESTITUTION: 0.6}).model()
        change = dict(model_changes(model, {}))["twice the restitution"]
        change(model)
        stiffness, damping = -model.geom("box").solref
        assert damping / (2.0 * np.sqrt(stiffness)) == pytest.approx(0.0163, abs=2e-4)
        assert np.pi / np.sqrt(stiffness) == pytest.approx(TRUTH[CONTACT_TIME])


class TestFrictionOfJoints:
    """Which friction model replays a robot is judged by distance and angle of its base, and by its joints."""

    def search(self, hopper: Robot, names: Collection[str]) -> Search:
        def chosen(model: str) -> tuple[Parameter, ...]:
            return tuple(p for p in catalogue(hopper, "command", model) if p.name in names)

        logs = [replace(dropped(hopper, HOPPER_FRICTION, seed=seed), name=f"drop{seed}") for seed in (5, 6)]
        return Search(
            robot=hopper,
            catalogue=chosen,
            windows=windows_of(hopper, logs, 0.25, stride_s=0.125),
            drive="command",
            budget_steps=300_000,
            deadline_s=math.inf,
            num_threads=2,
            report=lambda step: None,
        )

    def test_errors_are_relative_to_the_motion_of_base_and_joints(self, hopper: Robot) -> None:
        """No recording shows the leg's shear, so every model is the nominal one, and its error that of a replay."""
        search = self.search(hopper, ["leg.shear_xy"])
        errors = compare(search, {})
        assert list(errors) == ["coulomb", "stribeck", "load", "stribeck-load"]
        windows = search.windows
        off = Problem(hopper, (), windows, "command", num_threads=1).errors(np.zeros((1, 0)))[0]
        shares: list[float] = []
        for part in (slice(0, 3), slice(3, 6), slice(6, 7)):
            moved = windows.target[..., part] - windows.joint_pos[:, None, part]
            shares.append(float((off[..., part] ** 2).sum(axis=-1).mean() / (moved**2).sum(axis=-1).mean()))
        # Every window is left out once, and both recordings have as many.
        assert list(errors.values()) == pytest.approx([np.sqrt(np.mean(shares))] * 4)

    @pytest.mark.slow
    def test_a_model_is_chosen(self, hopper: Robot) -> None:
        search = self.search(hopper, ["hip.friction", *HOPPER_FRICTION])
        _, fit = fit_friction(search, "auto")
        assert any(note.startswith("friction model") for note in fit.notes)
        assert all(len(row) == 3 for row in fit.history)


def test_commands_are_not_designed_for_what_is_not_fixed(body: Robot) -> None:
    with pytest.raises(PhysaiError, match="robot cube has a floating base, and commands are designed for fixed ones"):
        design_excitation(fitted(body, TRUTH), [FRICTION])
