"""The bias index: statements of known bias, found again by meaning."""
