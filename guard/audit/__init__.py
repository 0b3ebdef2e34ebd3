"""Runs suites against a model, plain and guarded, and says how biased each arm is."""
