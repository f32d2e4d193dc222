"""A run as a Chrome trace for the Perfetto UI: its events, their places, counters and what is drawn over it."""
