"""Runs training workloads under profilers on a GPU node and keeps what they wrote. Never imports `analyze`."""
