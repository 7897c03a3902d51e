"""What a run found, as one HTML file and as figures."""

from diva.report.figures import write_figures
from diva.report.page import write_page, write_report

__all__ = ["write_figures", "write_page", "write_report"]
