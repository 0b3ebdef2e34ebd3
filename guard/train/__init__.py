"""Training, calibration and export of the embedded encoder."""
