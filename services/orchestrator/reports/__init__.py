"""A job's report: accuracy, its uncertainty, and its cost, computed from rows at each request."""

from services.orchestrator.reports.example import EXAMPLE
from services.orchestrator.reports.report import Report, report

__all__ = ["EXAMPLE", "Report", "report"]
