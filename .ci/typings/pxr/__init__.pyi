from typing import Any

Gf: Any
Usd: Any
UsdGeom: Any
Vt: Any
