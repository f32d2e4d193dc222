"""Read logs of nvprof."""
