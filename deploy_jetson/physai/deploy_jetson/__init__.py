"""The robot's side: runtime, transports, updates.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry

if TYPE_CHECKING:
    from physai.deploy_jetson.driving import RobotRun as RobotRun
    from physai.deploy_jetson.driving import run as run
    from physai.deploy_jetson.runtime.commands.requests import tell_runtime as tell_runtime
    from physai.deploy_jetson.runtime.loop.loop_result import Counts as Counts
    from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd as LoopEnd
    from physai.deploy_jetson.runtime.loop.summary import Summary as Summary
    from physai.deploy_jetson.runtime.system.realtime import Realtime as Realtime
    from physai.deploy_jetson.telemetry.run_telemetry import RunTelemetry as RunTelemetry
    from physai.deploy_jetson.update.agent.agent import Installed as Installed
    from physai.deploy_jetson.update.agent.status import DoctorCheck as DoctorCheck
    from physai.deploy_jetson.update.agent.status import SlotStatus as SlotStatus
    from physai.deploy_jetson.update.agent.status import Status as Status
    from physai.deploy_jetson.update.agent.watch import Watched as Watched
    from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload as BundleUpload
    from physai.deploy_jetson.update.flash.deliver import Flashed as Flashed
    from physai.deploy_jetson.update.flash.deliver import FlashStep as FlashStep
    from physai.deploy_jetson.update.flash.protocol import Offer as Offer
    from physai.deploy_jetson.update.flash.protocol import OfferedMember as OfferedMember
    from physai.deploy_jetson.update.flash.rollout import RobotReport as RobotReport
    from physai.deploy_jetson.update.flash.target import Target as Target
    from physai.deploy_jetson.update.flashing import FlashReport as FlashReport
    from physai.deploy_jetson.update.flashing import FlashSettings as FlashSettings
    from physai.deploy_jetson.update.flashing import flash as flash
    from physai.deploy_jetson.update.flashing import flash_fleet as flash_fleet
    from physai.deploy_jetson.update.measuring import TickTimes as TickTimes
    from physai.deploy_jetson.update.measuring import measure_ticks as measure_ticks
    from physai.deploy_jetson.update.operate import RobotTime as RobotTime
    from physai.deploy_jetson.update.operate import TrialEnd as TrialEnd
    from physai.deploy_jetson.update.operate import activate as activate
    from physai.deploy_jetson.update.operate import collect_garbage as collect_garbage
    from physai.deploy_jetson.update.operate import commit as commit
    from physai.deploy_jetson.update.operate import examine_robot as examine_robot
    from physai.deploy_jetson.update.operate import install as install
    from physai.deploy_jetson.update.operate import missing_members as missing_members
    from physai.deploy_jetson.update.operate import recover as recover
    from physai.deploy_jetson.update.operate import robot_status as robot_status
    from physai.deploy_jetson.update.operate import robot_time as robot_time
    from physai.deploy_jetson.update.operate import rollback as rollback
    from physai.deploy_jetson.update.operate import set_up_robot as set_up_robot
    from physai.deploy_jetson.update.operate import watch_trials as watch_trials
    from physai.deploy_jetson.update.robot_tree import RobotTree as RobotTree
    from physai.deploy_jetson.update.slots.health import Health as Health
    from physai.deploy_jetson.update.slots.health import HealthFinding as HealthFinding
    from physai.deploy_jetson.update.slots.slot_records import InferenceRuntime as InferenceRuntime
    from physai.deploy_jetson.update.slots.slot_records import Marker as Marker
    from physai.deploy_jetson.update.slots.slot_records import SelfTest as SelfTest
    from physai.deploy_jetson.update.slots.slot_records import SlotEvent as SlotEvent
    from physai.deploy_jetson.update.slots.slot_records import SlotFile as SlotFile
    from physai.deploy_jetson.update.slots.slot_records import VersionTrial as VersionTrial
    from physai.deploy_jetson.upload.recording_upload import RecordingUpload as RecordingUpload
    from physai.deploy_jetson.upload.recording_upload import upload_recordings as upload_recordings

__all__ = [
    "BundleUpload",
    "Counts",
    "DoctorCheck",
    "FlashReport",
    "FlashSettings",
    "FlashStep",
    "Flashed",
    "Health",
    "HealthFinding",
    "InferenceRuntime",
    "Installed",
    "LoopEnd",
    "Marker",
    "Offer",
    "OfferedMember",
    "Realtime",
    "RecordingUpload",
    "RobotReport",
    "RobotRun",
    "RobotTime",
    "RobotTree",
    "RunTelemetry",
    "SelfTest",
    "SlotEvent",
    "SlotFile",
    "SlotStatus",
    "Status",
    "Summary",
    "Target",
    "TickTimes",
    "TrialEnd",
    "VersionTrial",
    "Watched",
    "activate",
    "collect_garbage",
    "commit",
    "examine_robot",
    "flash",
    "flash_fleet",
    "install",
    "measure_ticks",
    "missing_members",
    "recover",
    "robot_status",
    "robot_time",
    "rollback",
    "run",
    "set_up_robot",
    "tell_runtime",
    "upload_recordings",
    "watch_trials",
]

__getattr__ = lazy_exports(__name__)
