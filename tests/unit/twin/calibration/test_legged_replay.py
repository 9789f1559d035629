"""A legged robot with recorded base poses is replayed with its joints, and shows a wrong friction of its feet."""

import numpy as np
from tests.support.fixtures_calibration import changed_model
from tests.support.floating import SLIPPERY, dropped

from physai.sim.robots import load_robot
from physai.twin.calibration.replay.replay import replay
from physai.twin.parameters.models import calibration_model


def test_the_truth_replays_a_legged_robot_better_than_the_nominal_one() -> None:
    go2 = load_robot("go2")
    log = dropped(go2, SLIPPERY)
    truth = replay(changed_model(go2, SLIPPERY), go2, [log])
    nominal = replay(calibration_model(go2), go2, [log])
    assert truth.joint_names == ("base.position", "base.rotation", *go2.spec.joint_names)
    right, wrong = (np.array([error.value for error in score.rmse]) for score in (truth, nominal))
    # 5 mm and 20 mrad are several times what the noise of the start makes of 0.25 s.
    assert (right[:2] < [0.005, 0.02]).all()
    assert (right[:2] < 0.5 * wrong[:2]).all()
    assert (right[2:] < 0.01).all()
