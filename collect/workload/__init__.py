"""The built-in workload: trains a torchvision model in processes that `collect run` starts."""
