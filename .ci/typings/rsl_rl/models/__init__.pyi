from typing import Any

from torch import nn

class MLPModel(nn.Module):
    is_recurrent: bool
    obs_groups: list[str]
    def as_onnx(self, verbose: bool) -> nn.Module: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
