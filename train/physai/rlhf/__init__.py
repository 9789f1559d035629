"""Learning from people: answers, reward models and fine-tuning.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry

if TYPE_CHECKING:
    from physai.rlhf.answers.teacher_choice import TeacherParameters as TeacherParameters
    from physai.rlhf.collection.collect import Collected as Collected
    from physai.rlhf.finetune.fine_tune import fine_tune as fine_tune
    from physai.rlhf.finetune.finetune import Finetuned as Finetuned
    from physai.rlhf.finetune.preference_api import FittedReward as FittedReward
    from physai.rlhf.finetune.preference_api import SimulatedAnswers as SimulatedAnswers
    from physai.rlhf.finetune.preference_api import answer_preferences as answer_preferences
    from physai.rlhf.finetune.preference_api import collect_preferences as collect_preferences
    from physai.rlhf.finetune.preference_api import fit_preferences as fit_preferences
    from physai.rlhf.finetune.preference_api import preference_status as preference_status
    from physai.rlhf.finetune.preference_api import train_from_preferences as train_from_preferences
    from physai.rlhf.finetune.record import CurvePoint as CurvePoint
    from physai.rlhf.finetune.scratch import ScratchOutcome as ScratchOutcome
    from physai.rlhf.imitation.run_imitation import ImitationRun as ImitationRun
    from physai.rlhf.imitation.run_imitation import imitate as imitate
    from physai.rlhf.reward_model.fit_report import CalibrationBin as CalibrationBin
    from physai.rlhf.reward_model.fit_report import FitReport as FitReport

__all__ = [
    "CalibrationBin",
    "Collected",
    "CurvePoint",
    "Finetuned",
    "FitReport",
    "FittedReward",
    "ImitationRun",
    "ScratchOutcome",
    "SimulatedAnswers",
    "TeacherParameters",
    "answer_preferences",
    "collect_preferences",
    "fine_tune",
    "fit_preferences",
    "imitate",
    "preference_status",
    "train_from_preferences",
]

__getattr__ = lazy_exports(__name__)
