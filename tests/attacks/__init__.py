"""Attacks on every door with random answers of a provider, and an oracle that knows the truth.

``python -m tests.attacks --streams 100000 --seed 1 --processes 2`` runs many;
``python -m tests.attacks --replay 17`` shows one in full. A number makes a case, always the same.
"""
