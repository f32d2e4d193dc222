"""Chrome traces, as torch.profiler and others write them."""
