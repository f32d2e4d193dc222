"""A report: one HTML page about recordings, made of the query files by the declaration in `page.toml`."""
