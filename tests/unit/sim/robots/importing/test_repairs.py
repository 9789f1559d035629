"""What a URDF leaves open is filled in without changing what it says."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sim.robots.files.xmlfile import parse_xml
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.importer import ImportOptions, import_robot
from physai.sim.robots.importing.urdf.urdf_repairs import repair

Array = NDArray[np.float64]
INERTIA = '<inertia ixx="{0}" iyy="{1}" izz="{2}" ixy="{3}" ixz="{4}" iyz="{5}"/>'
ONE = """<robot name="r"><link name="a"><inertial><mass value="{mass}"/>{inertia}</inertial></link>
<link name="b"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="j" type="{kind}"><parent link="b"/><child link="a"/><axis xyz="1 0 0"/>{limit}</joint></robot>"""


def repaired(**values: Any) -> tuple[Any, str]:
    """The repaired tree, and what was decided."""
    given_values = {"mass": 1, "inertia": INERTIA.format(1, 1, 1, 0, 0, 0), "kind": "continuous", "limit": ""}
    balance = values.pop("balance", False)
    parsed = parse_xml(ONE.format(**{**given_values, **values}).encode(), Path("r.urdf"))
    decisions = Decisions()
    repair(parsed, decisions, balance=balance)
    return parsed.root, "\n".join(decisions.lines())


def tensor(root: Any) -> Array:
    inertia = root.find("link/inertial/inertia")
    xx, yy, zz, xy, xz, yz = (float(inertia.get(key)) for key in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"))
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


numbers = st.floats(-1.0, 1.0).map(lambda x: round(x, 6))


@given(st.tuples(numbers, numbers, numbers, numbers, numbers, numbers))
@example((-0.625, -0.625, -1.0, -0.625, -0.625, -0.625))  # the greatest moment is 0 up to rounding
def test_inertia_becomes_possible_and_possible_inertia_stays(values: tuple[float, ...]) -> None:
    root, said = repaired(inertia=INERTIA.format(*values), balance=True)
    xx, yy, zz, xy, xz, yz = values
    before = np.linalg.eigvalsh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    after = np.linalg.eigvalsh(tensor(root))
    if before[2] <= 1e-9 * np.abs(before).max() and np.abs(before).max() >= 1e-9:
        assert np.allclose(after, before)  # refused by the rules that follow
        return
    assert after[0] > 0.0
    assert after[0] + after[1] >= after[2]
    if before[0] > 0.0 and before[0] + before[1] >= before[2] * 1.001:
        assert np.allclose(after, before, rtol=1e-12)
        assert not said
    elif np.abs(before).max() >= 1e-9:
        assert after[2] == pytest.approx(before[2], rel=1e-9)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"inertia": ""}, "a: has no moments of inertia; those of a ball of 1 kg are used"),
        ({"mass": 0, "inertia": ""}, "a: moves but has no mass; 0.001 kg and 1e-06 kg·m² are used"),
        ({"mass": 0, "kind": "fixed"}, ""),
        ({"mass": 1e-9, "kind": "fixed"}, "a: 1e-09 kg fixed to another link, taken as a frame without mass"),
        ({"kind": "revolute"}, "j: has no <limit>"),
        ({"kind": "revolute", "limit": '<limit effort="1" velocity="1"/>'}, "j: lower and upper limit are both 0"),
        ({"kind": "revolute", "limit": '<limit lower=".5" upper=".5"/>'}, "both 0.5, so it does not move"),
        ({"kind": "prismatic", "limit": "<limit/>"}, "both 0, so it does not move"),
        ({"kind": "revolute", "limit": '<limit lower="-1e16" upper="1e16"/>'}, "limits -1e+16 and 1e+16 rad taken as"),
        ({"kind": "planar"}, "j: planar joint held still"),
    ],
)
def test_what_is_decided_is_said(values: dict[str, Any], said: str) -> None:
    assert said in repaired(**values)[1]
    if not said:
        assert repaired(**values)[1] == ""


@pytest.mark.parametrize(("mass", "raised"), [(0.04, True), (0.06, False)])
def test_the_inertia_of_a_fingertip_is_raised_without_a_word(mass: float, raised: bool) -> None:
    """8e-6 + 2e-5 kg·m² is less than 4e-5, and both links are more than 2 % of a robot of 1 kg."""
    root, said = repaired(mass=mass, inertia=INERTIA.format(8e-6, 2e-5, 4e-5, 0, 0, 0))
    low, middle, high = np.linalg.eigvalsh(tensor(root))
    assert bool(low + middle >= high) is raised
    assert ("the smaller ones are raised" in said) is raised


def test_a_ball_has_the_inertia_of_water() -> None:
    root, _ = repaired(inertia="")
    radius = (3.0 / (4.0 * np.pi * 1000.0)) ** (1.0 / 3.0)
    assert np.allclose(tensor(root), np.eye(3) * 0.4 * radius**2)


@st.composite
def chains(draw: st.DrawFn) -> str:
    """Links in a row, some fixed to the one before and without mass."""
    parts, length = ['<link name="l0"/>'], draw(st.integers(2, 6))
    for n in range(1, length + 1):
        # The first joint moves, and the last link carries something.
        fixed = 1 < n < length and draw(st.booleans())
        mass = 1e-9 if fixed and draw(st.booleans()) else draw(st.floats(0.1, 5.0))
        x, y, z, roll, pitch = (draw(st.floats(-0.5, 0.5)) for _ in range(5))
        moment = mass * draw(st.floats(1e-3, 1e-2))
        kind = "fixed" if fixed else "continuous"
        parts += [
            f'<link name="l{n}"><inertial><origin xyz="{z} {x} {y}"/><mass value="{mass}"/>',
            INERTIA.format(moment, 1.2 * moment, 0.9 * moment, 0, 0, 0),
            f'</inertial></link><joint name="j{n}" type="{kind}"><parent link="l{n - 1}"/><child link="l{n}"/>',
            f'<origin xyz="{x} {y} {z}" rpy="{roll} {pitch} 0"/><axis xyz="0 {n % 2} {1 - n % 2}"/></joint>',
        ]
    return f'<robot name="chain">{"".join(parts)}</robot>'


@pytest.mark.slow
@given(chains(), st.integers(0, 2**32 - 1))
def test_frames_and_inertia_stay_where_they_were(
    tmp_path_factory: pytest.TempPathFactory, text: str, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    (folder / "chain.urdf").write_text(text)
    last = f"l{text.count('<joint')}"
    model = import_robot(folder / "chain.urdf", folder / "out", ImportOptions(end_effector=last)).robot.model
    # MuJoCo's own reading of the same file.
    plain = mujoco.MjSpec.from_string(text)
    plain.compiler.fusestatic = False
    plain.body(last).add_site(name="ee")
    before = plain.compile()
    random = np.random.default_rng(seed)
    qpos = np.asarray(random.uniform(-3.0, 3.0, int(model.nq)))
    states: list[Any] = []
    for one in (before, model):
        data, full = mujoco.MjData(one), np.zeros((one.nv, one.nv))
        data.qpos[:] = qpos
        mujoco.mj_forward(one, data)
        mujoco.mj_fullM(one, data, full)
        pose = (data.site("ee").xpos.copy(), data.site("ee").xmat.copy())
        states.append((*pose, full - np.diag(one.dof_armature)))
    for ours, theirs in zip(states[1], states[0], strict=True):
        # An imported model is written with six digits.
        assert np.allclose(ours, theirs, rtol=1e-4, atol=2e-5)
