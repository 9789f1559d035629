"""Light in scenes whose images a policy sees: the same in both renderers, and with or without shadows."""

import mujoco

AMBIENT = 0.4
"""Light from everywhere."""

DIRECT = 0.5
"""Light of a lamp at right angles."""

DIRECTION = (0.3, 0.2, -1.0)


def even_light(spec: mujoco.MjSpec, *, shadows: bool = False) -> None:
    """Replace the lights of a scene by one lamp from above with ambient light, and turn gloss and reflections off.

    Together they stay below 1. MuJoCo's OpenGL renderer adds the lights that cast a shadow after the others and clips
    the sums each time, so that brighter scenes change their brightness with the shadow setting.

    Args:
        spec: changed in place.
        shadows: whether the lamp casts them.
    """
    for light in list(spec.lights):
        spec.delete(light)
    head = spec.visual.headlight
    head.ambient, head.diffuse, head.specular = [0.0] * 3, [0.0] * 3, [0.0] * 3
    spec.worldbody.add_light(
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=[0.0, 0.0, 4.0],
        dir=list(DIRECTION),
        diffuse=[DIRECT] * 3,
        ambient=[AMBIENT] * 3,
        specular=[0.0] * 3,
        castshadow=shadows,
    )
    for material in spec.materials:
        material.specular, material.reflectance, material.emission = 0.0, 0.0, 0.0
    # Samples per pixel and the size of the shadow map cost more than all the rest on a CPU.
    spec.visual.quality.offsamples = 0
    spec.visual.quality.shadowsize = 1024 if shadows else 0
