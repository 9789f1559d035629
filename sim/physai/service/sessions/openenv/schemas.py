"""JSON Schemas of what OpenEnv clients send and receive."""

from typing import Any

from physai.service.sessions.openenv.episodes import Episode, Profile

_STATE = {
    "type": "object",
    "properties": {
        "episode_id": {"type": "string"},
        "step_count": {"type": "integer"},
        "task": {"type": "string"},
        "worlds": {"type": "integer"},
        "step_dt": {"type": "number"},
    },
}
_BASE64 = {
    "type": "object",
    "required": ["dtype", "shape", "data"],
    "properties": {
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": {"type": "string", "contentEncoding": "base64"},
    },
}
_TOOL_ACTION = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["list_tools", "call_tool"]},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
}


def schemas(episode: Episode, profile: Profile) -> dict[str, Any]:
    """Schemas of `action`, `observation` and `state` of an episode."""
    if profile == "skills":
        return {"action": _TOOL_ACTION, "observation": {"type": "object"}, "state": _STATE}
    description = episode.session.describe()

    def arrays(shapes: dict[str, Any]) -> dict[str, Any]:
        return {name: _BASE64 if profile == "batch" else _list(shape["shape"]) for name, shape in shapes.items()}

    actions = arrays(description["actions"])
    return {
        "action": {"type": "object", "required": sorted(actions), "properties": actions},
        "observation": {"type": "object", "properties": arrays(description["observations"])},
        "state": _STATE,
    }


def _list(shape: list[int]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "number"}
    for size in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
    return schema
