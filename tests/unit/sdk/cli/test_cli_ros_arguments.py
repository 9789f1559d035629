"""Arguments that ROS's launch files add to every process are rclpy's business."""

import pytest

from physai.sdk.cli.main import main


@pytest.mark.parametrize(
    "arguments",
    [
        ["contract", "--ros-args", "-r", "__ns:=/left"],
        ["contract", "--ros-args", "-r", "__ns:=/left", "--", "--help"],
        ["--ros-args", "--log-level", "debug", "--", "contract", "--help"],
    ],
)
def test_they_are_left_out(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments)
    told = "".join(capsys.readouterr())
    assert "__ns" not in told
    assert "contract" in told


def test_others_are_still_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--ros"]) == 2
    assert "--ros" in capsys.readouterr().err
