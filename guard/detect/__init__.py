"""Detectors: what judges a window."""
