REGISTER_ISAACLAB_ENVS: dict[str, type]
