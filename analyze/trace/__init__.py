"""Export a run as a Chrome trace for the Perfetto UI."""
