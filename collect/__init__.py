"""Records training workloads with profilers on a GPU node. Never imports `analyze`."""
