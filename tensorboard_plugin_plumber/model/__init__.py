"""Operational analysis: rates, bounds, the optimum under them, and findings."""
