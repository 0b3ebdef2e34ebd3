"""Measures the guard itself: what ``guard bench`` runs. Figures, no verdicts about them."""
