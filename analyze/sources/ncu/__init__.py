"""Read the output of Nsight Compute: CSV, text, and reports through ncu itself."""
