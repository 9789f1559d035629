"""Gates of `physai sim validate`: each tests one property of an exported policy and can fail it."""
