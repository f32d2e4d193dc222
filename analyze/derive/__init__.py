"""Facts of one rank, computed from its tables when they are ingested."""
