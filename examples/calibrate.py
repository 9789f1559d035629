"""Fit a twin to recordings of a robot, and ask whether to believe it.

physai sim record double_pendulum -o recordings --recordings 4 --duration-s 6    # or recordings of your robot
python examples/calibrate.py double_pendulum recordings/*.csv
"""

import sys
import tempfile
from pathlib import Path

from physai.sim import Robot, load_robot
from physai.twin import Calibration, RobotLog, Twin, calibrate, load_twin, nominal_twin, read_log, read_logs, save_twin

if len(sys.argv) < 3:
    sys.exit(__doc__)
robot: Robot = load_robot(sys.argv[1])
first: RobotLog = read_log(sys.argv[2], robot.spec)
print(f"{first.name}: {len(first.time)} samples of {', '.join(first.joint_names)}")
logs = read_logs(sys.argv[2:], robot.spec)

# Judged on two recordings that it was not fitted to.
calibration: Calibration = calibrate(robot, logs[:-2], logs[-2:], out=None, budget_steps=5_000_000)
twin: Twin = calibration.twin
for parameter in twin.parameters:
    if parameter.identified:
        print(f"  {parameter.name}: {parameter.value:.4g} ± {parameter.std:.2g} {parameter.unit}")
credibility = twin.credible()
print("credible" if credibility.holds else "not credible:", "; ".join(credibility.reasons))
assert not nominal_twin(robot).credible().holds  # what was never compared with a robot says nothing about it

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "twin.json"
    save_twin(twin, path)
    assert load_twin(path).hash == twin.hash
