"""What `collect` and `analyze` agree on: the run manifest, tables, phases, kernel rules and device peaks.

Data and declarations; nothing here reads a trace or runs a model.
"""
