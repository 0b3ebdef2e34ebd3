"""Training, calibration, export and evaluation of the embedded encoder."""
