"""The command line: ``diva fit``, ``resume``, ``stream``, ``predict``, ``sample``, ``report``, ``data``."""

from diva.__main__ import main
from diva.cli.app import app

__all__ = ["app", "main"]
