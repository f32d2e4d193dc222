"""Raw files into a store: which files are one run, worker processes, shards, compaction, the cache."""
