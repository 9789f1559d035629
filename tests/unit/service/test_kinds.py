"""What a specification may say."""

import pytest
from pydantic import ValidationError

from physai.service.jobs.kinds import CalibrateSpec

ONE, TWO = "1" * 64, "2" * 64


@pytest.mark.parametrize(
    ("held_out", "says"),
    [
        ({"a.csv": TWO}, "held_out 'a.csv': logs has a recording of the same name; "),
        ({"b.csv": ONE}, "held_out 'b.csv': logs has a recording with the same content, 'a.csv'; "),
    ],
)
def test_a_recording_that_is_fitted_is_not_held_out(held_out: dict[str, str], says: str) -> None:
    logs = {"a.csv": ONE}
    CalibrateSpec(robot="xl330_pendulum", logs=logs, held_out={"b.csv": TWO})
    with pytest.raises(ValidationError) as refused:
        CalibrateSpec(robot="xl330_pendulum", logs=logs, held_out=held_out)
    assert says in str(refused.value)
