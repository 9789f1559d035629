"""Gates of `physai sim validate`: each tests one property of an exported policy and can fail it.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.gates.checks.gate import Context as Context
    from physai.gates.checks.gate import FailedEpisode as FailedEpisode
    from physai.gates.checks.gate import Gate as Gate
    from physai.gates.checks.gate import GateFinding as GateFinding
    from physai.gates.checks.gate import Play as Play
    from physai.gates.execution.command_grid import CommandCell as CommandCell
    from physai.gates.execution.command_grid import CommandGrid as CommandGrid
    from physai.gates.execution.command_grid import command_grid as command_grid
    from physai.gates.execution.subject import ValidationSubject as ValidationSubject
    from physai.gates.field_recordings import field_episodes as field_episodes
    from physai.gates.report.exam_opening import open_exam as open_exam
    from physai.gates.report.validation import validate as validate
    from physai.gates.report.validation_options import ValidationOptions as ValidationOptions
    from physai.gates.runner import GateError as GateError
    from physai.gates.runner import ProgressLine as ProgressLine
    from physai.gates.score_ranks import ScoreComparison as ScoreComparison
    from physai.gates.score_ranks import rank as rank
    from physai.gates.settings import ConditionSettings as ConditionSettings
    from physai.gates.settings import EngineSettings as EngineSettings
    from physai.gates.settings import FalsificationSettings as FalsificationSettings
    from physai.gates.settings import GateSettings as GateSettings
    from physai.gates.settings import LatencySettings as LatencySettings
    from physai.gates.settings import NonInferioritySettings as NonInferioritySettings
    from physai.gates.settings import ParitySettings as ParitySettings
    from physai.gates.settings import RateSettings as RateSettings
    from physai.gates.settings import RobustnessSettings as RobustnessSettings
    from physai.gates.settings import SafetySettings as SafetySettings
    from physai.gates.settings import load_gates as load_gates

__all__ = [
    "CommandCell",
    "CommandGrid",
    "ConditionSettings",
    "Context",
    "EngineSettings",
    "FailedEpisode",
    "FalsificationSettings",
    "Gate",
    "GateError",
    "GateFinding",
    "GateSettings",
    "LatencySettings",
    "NonInferioritySettings",
    "ParitySettings",
    "Play",
    "ProgressLine",
    "RateSettings",
    "RobustnessSettings",
    "SafetySettings",
    "ScoreComparison",
    "ValidationOptions",
    "ValidationSubject",
    "command_grid",
    "field_episodes",
    "load_gates",
    "open_exam",
    "rank",
    "validate",
]

__getattr__ = lazy_exports(__name__)
