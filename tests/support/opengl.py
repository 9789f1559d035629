"""Marks tests that draw."""

import pytest

from physai.sdk.base.errors import DeviceError
from physai.sim.playback.rendering import rendering_backend


def has_opengl() -> bool:
    try:
        rendering_backend()
    except DeviceError:
        return False
    return True


needs_opengl = pytest.mark.skipif(not has_opengl(), reason="no OpenGL: libegl1 and libgl1-mesa-dri are not installed")
