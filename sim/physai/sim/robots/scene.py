"""Additions to a robot's file for looking at it and standing on something: a sky, a light and a floor."""

import mujoco

from physai.sim.robots.shapes import shape_corners
from physai.sim.robots.spec import has_floating_base, home_qpos


def dress(spec: mujoco.MjSpec) -> None:
    """Adds a sky, a light and a floor just below the robot, each unless there is one.

    Only robots with a floating base collide with the floor.

    Raises:
        ValueError: the model does not compile.
    """
    light_up(spec)
    if not any(geom.type == mujoco.mjtGeom.mjGEOM_PLANE for geom in spec.geoms):
        _add_floor(spec)


def light_up(spec: mujoco.MjSpec) -> None:
    """Adds a sky and a light, each unless there is one; no body, joint or shape changes its number."""
    if not any(texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX for texture in spec.textures):
        sky = spec.add_texture(name="physai_sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, width=64, height=384)
        sky.builtin = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
        sky.rgb1, sky.rgb2 = [0.93, 0.95, 0.97], [0.62, 0.70, 0.80]
    if not list(spec.lights):
        light = spec.worldbody.add_light(name="physai_light", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
        light.pos, light.dir, light.diffuse = [-1.0, -2.0, 4.0], [0.25, 0.5, -1.0], [0.6, 0.6, 0.6]
        spec.visual.headlight.ambient = [0.38, 0.38, 0.38]
        spec.visual.map.shadowclip = 2.5


def _add_floor(spec: mujoco.MjSpec) -> None:
    grid = spec.add_texture(name="physai_grid", type=mujoco.mjtTexture.mjTEXTURE_2D, width=256, height=256)
    grid.builtin, grid.mark = mujoco.mjtBuiltin.mjBUILTIN_CHECKER, mujoco.mjtMark.mjMARK_EDGE
    grid.rgb1, grid.rgb2, grid.markrgb = [0.83, 0.85, 0.87], [0.78, 0.80, 0.83], [0.70, 0.72, 0.75]
    material = spec.add_material(name="physai_floor", texrepeat=[4.0, 4.0], texuniform=True)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "physai_grid"
    model = spec.compile()
    lowest = float(shape_corners(model, [home_qpos(model)])[:, 2].min())
    floor = spec.worldbody.add_geom(name="physai_floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 0.1])
    floor.pos, floor.material = [0.0, 0.0, lowest], "physai_floor"
    floor.contype, floor.conaffinity = 0, 1 if has_floating_base(model) else 0
