"""Meshes and textures of an imported robot."""
