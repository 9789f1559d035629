from typing import Any

# Expressions overload every operator on numbers, arrays and each other.
SX: Any
MX: Any
DM: Any
Function: Any

def __getattr__(name: str) -> Any: ...
