"""Estimators built on networks and the mixture."""
