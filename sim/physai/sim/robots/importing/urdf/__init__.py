"""Repairs of URDF files before their import."""
