"""Systems that the paper compares with, each on the same data, training loop and files as DIVA."""

from diva.baselines.dec import DEC

__all__ = ["DEC"]
