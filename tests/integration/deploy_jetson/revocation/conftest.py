"""Fixtures of these tests; see `tests.support.fixtures_robot`."""

from tests.support.fixtures_robot import bundles, folder, now, site, workshop

__all__ = ["bundles", "folder", "now", "site", "workshop"]
