"""Writes and reads the summaries that hold what was measured."""
