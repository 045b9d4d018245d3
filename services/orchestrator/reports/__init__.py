"""A job's report: how well, with what certainty, and at what cost. Computed from rows each time it is asked for."""

from services.orchestrator.reports.example import EXAMPLE
from services.orchestrator.reports.report import Report, report

__all__ = ["EXAMPLE", "Report", "report"]
