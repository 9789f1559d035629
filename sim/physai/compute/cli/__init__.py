"""`physai artefacts`, and the options of every verb that computes."""
