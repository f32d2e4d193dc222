"""Questions over stores: the query files, the DuckDB that holds the tables, and the answers."""
