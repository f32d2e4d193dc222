"""Recordings as pages of a server on this machine: the report, each question, SQL, and two runs compared."""
