"""nvprof: its CSV output."""
