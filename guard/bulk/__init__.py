"""Bulk judging: every row of large files, on all cores or on Ray, resumable.

A file is planned as blocks of rows (`planning.py`), each of which is read and judged by itself
(`judging.py`) by whoever is asked: this process, others (`processes.py`) or Ray's actors
(`actors.py`). One driver (`job.py`) keeps their verdicts (`verdict_store.py`), and at last writes
the input's rows with their verdicts beside them (`joining.py`).
"""
