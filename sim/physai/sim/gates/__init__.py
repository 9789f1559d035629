"""The gates of `physai sim validate`: each asks one question of an exported policy and can answer no."""
