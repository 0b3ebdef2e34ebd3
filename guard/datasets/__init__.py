"""Published datasets: one reader of their files and fields for imports, training and evaluation.

:mod:`guard.datasets.registry` is the registry. :mod:`guard.datasets.rows` reads the file formats.
"""
