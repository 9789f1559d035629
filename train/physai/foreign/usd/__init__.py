"""Robots in OpenUSD: MuJoCo's decoder reads them, and the stage itself is the measure of what it returns."""
