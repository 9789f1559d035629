"""Adapters with which learners of other frameworks act in worlds of a twin service (`physai sim serve`).

Copy this folder next to your program, or put `examples` on `PYTHONPATH`. It needs the extras `train` and `serve`, and
the framework of the adapter: `sb3_remote`, `rlinf`, `trl`, `verl` or `openrlhf`. Those for
language models share `skills`.
"""
