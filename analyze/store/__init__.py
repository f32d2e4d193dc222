"""Stores: runs as Parquet files and a catalogue, in a folder or on object storage."""
