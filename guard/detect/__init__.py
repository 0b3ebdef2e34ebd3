"""Detectors, which score windows, and the machinery that runs them."""
