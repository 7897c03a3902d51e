"""The command line: ``diva fit``, ``resume``, ``stream``, ``predict``, ``sample``, ``report``, ``data``."""

from diva.cli.app import app, main

__all__ = ["app", "main"]
