"""`collect sweep`: a grid of runs, one after the other here or as tasks of a cluster."""
