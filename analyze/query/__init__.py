"""Answer queries over stores: query files, the DuckDB that reads the stored tables, and results."""
