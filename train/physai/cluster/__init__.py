"""Training on many computers: generators of rollouts, sweeps and workflows.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.cluster.generators.launch import Generators as Generators
    from physai.cluster.placement.placement import Placement as Placement
    from physai.cluster.placement.placement import PlacementGroup as PlacementGroup
    from physai.cluster.placement.placement import read_placement as read_placement
    from physai.cluster.planning.estimate import Costs as Costs
    from physai.cluster.planning.estimate import Node as Node
    from physai.cluster.planning.estimate import Plan as Plan
    from physai.cluster.planning.plan_generators import GeneratorPlan as GeneratorPlan
    from physai.cluster.planning.plan_generators import plan_generators as plan_generators
    from physai.cluster.sweep.folder import StateRecord as StateRecord
    from physai.cluster.sweep.folder import SweepBase as SweepBase
    from physai.cluster.sweep.folder import SweepFolder as SweepFolder
    from physai.cluster.sweep.folder import SweepRecord as SweepRecord
    from physai.cluster.sweep.folder import SweepTrial as SweepTrial
    from physai.cluster.sweep.plan import Asha as Asha
    from physai.cluster.sweep.plan import Budget as Budget
    from physai.cluster.sweep.plan import Distribution as Distribution
    from physai.cluster.sweep.plan import Sweep as Sweep
    from physai.cluster.sweep.results import PointResult as PointResult
    from physai.cluster.sweep.results import TrialResult as TrialResult
    from physai.cluster.sweep.run_sweep import SweepOutcome as SweepOutcome
    from physai.cluster.sweep.run_sweep import run_sweep as run_sweep
    from physai.cluster.workflow.lint import LintFinding as LintFinding
    from physai.cluster.workflow.model import Credential as Credential
    from physai.cluster.workflow.model import GangMember as GangMember
    from physai.cluster.workflow.model import Image as Image
    from physai.cluster.workflow.model import Input as Input
    from physai.cluster.workflow.model import Output as Output
    from physai.cluster.workflow.model import Resources as Resources
    from physai.cluster.workflow.model import Workflow as Workflow
    from physai.cluster.workflow.model import WorkflowStage as WorkflowStage
    from physai.cluster.workflow.runner import StageReport as StageReport
    from physai.cluster.workflow.workflow_api import CheckedWorkflow as CheckedWorkflow
    from physai.cluster.workflow.workflow_api import WorkflowOutcome as WorkflowOutcome
    from physai.cluster.workflow.workflow_api import emit_workflow as emit_workflow
    from physai.cluster.workflow.workflow_api import lint_workflow as lint_workflow
    from physai.cluster.workflow.workflow_api import run_workflow as run_workflow

__all__ = [
    "Asha",
    "Budget",
    "CheckedWorkflow",
    "Costs",
    "Credential",
    "Distribution",
    "GangMember",
    "GeneratorPlan",
    "Generators",
    "Image",
    "Input",
    "LintFinding",
    "Node",
    "Output",
    "Placement",
    "PlacementGroup",
    "Plan",
    "PointResult",
    "Resources",
    "StageReport",
    "StateRecord",
    "Sweep",
    "SweepBase",
    "SweepFolder",
    "SweepOutcome",
    "SweepRecord",
    "SweepTrial",
    "TrialResult",
    "Workflow",
    "WorkflowOutcome",
    "WorkflowStage",
    "emit_workflow",
    "lint_workflow",
    "plan_generators",
    "read_placement",
    "run_sweep",
    "run_workflow",
]

__getattr__ = lazy_exports(__name__)
