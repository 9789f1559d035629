"""Workflows in the formats of other schedulers: KubeRay and NVIDIA OSMO."""
