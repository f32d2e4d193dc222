"""What `collect` and `analyze` agree on: the run manifest, the tables, the phases, the kernel families, the device peaks.

Data and declarations; nothing here reads a trace or runs a model.
"""
