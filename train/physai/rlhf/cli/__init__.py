"""`physai imitate`, `prefer` and `finetune`."""
