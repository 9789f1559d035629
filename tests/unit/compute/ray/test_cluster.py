"""What is refused before a cluster computes anything."""

import pytest

from physai.compute.ray.cluster import ClusterError, require_same_versions, versions


def test_a_computer_with_another_version_is_refused() -> None:
    here = versions(["numpy", "mujoco"])
    require_same_versions("far", here)
    with pytest.raises(ClusterError, match=f"far has mujoco 0.1, this computer {here['mujoco']}; numbers would differ"):
        require_same_versions("far", {**here, "mujoco": "0.1"})
