"""Training, calibration and export of the embedded encoder.

Why: docs/decisions/training-needs-a-checkout.md.
"""
