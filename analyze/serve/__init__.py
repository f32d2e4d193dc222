"""Recordings as pages of a server on this machine: the report, each query, SQL, and two runs compared."""
