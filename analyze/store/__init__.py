"""Raw files in, a store of Parquet files out: what is found, grouped into runs, read, written and kept."""
