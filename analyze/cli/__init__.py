"""The command line: each command parses options, calls the Python API and prints."""
