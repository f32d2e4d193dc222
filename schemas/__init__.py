"""What `collect` and `analyze` share: the run manifest, tables, phases, kernel rules and GPU peaks.

Data and declarations only: nothing here reads a trace or runs a model.
"""
