"""Version of diva; here, so that any module may know it."""

__version__ = "0.1.0.dev0"
