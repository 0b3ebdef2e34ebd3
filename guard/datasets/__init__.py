"""Published datasets: their files and fields, read in one way for imports, training and evaluation.

:mod:`guard.datasets.registry` is the registry. :mod:`guard.datasets.rows` reads the file formats,
published or of one's own.
"""
