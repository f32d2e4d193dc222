"""Nsight Compute: its CSV and text output, and reports through ncu itself."""
