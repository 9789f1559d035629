"""Metrics of sessions and jobs for Prometheus, counted at the moment it asks."""

from collections.abc import Generator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from physai.service.jobs.queue import JobQueue
from physai.service.sessions.manager import SessionManager


class ServiceCollector(Collector):
    """Sessions, worlds, steps and jobs."""

    def __init__(self, sessions: SessionManager, jobs: JobQueue) -> None:
        """Reads from these two."""
        self._sessions = sessions
        self._jobs = jobs

    def collect(self) -> Generator[GaugeMetricFamily | CounterMetricFamily]:
        """The metrics, as the library wants them."""
        open_sessions = self._sessions.all()
        yield GaugeMetricFamily("physai_sessions", "Open sessions.", value=len(open_sessions))
        worlds = sum(session.options.worlds for session in open_sessions)
        yield GaugeMetricFamily("physai_worlds", "Worlds of all open sessions.", value=worlds)
        steps = self._sessions.world_steps()
        yield CounterMetricFamily("physai_world_steps", "Steps of single worlds since the start.", value=steps)
        jobs = GaugeMetricFamily("physai_jobs", "Jobs in the database.", labels=["state"])
        for state, count in self._jobs.counts().items():
            jobs.add_metric([state], count)
        yield jobs
