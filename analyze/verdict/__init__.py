"""Verdicts over repeated runs: slower, faster, same, or cannot tell."""
