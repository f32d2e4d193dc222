"""Fuzzing of the readers: real files of every source, damaged at random, through the real ingest.

    python -m tests.fuzz --seconds 600 --seed 7 --source ncu

`corpus` has the real files, `mutate` the damage, `cases` makes an input of a source, a seed and a number, `worker`
ingests it in a process with limits, `laws` says what must hold: InputError or an answer, never a traceback, a hang or
memory without bound, and rows read + rows reported lost = rows there, by a count of its own.
"""
