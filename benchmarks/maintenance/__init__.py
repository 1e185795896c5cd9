"""Maintenance: what turning equality deletes into vectors costs, and what readers have of it, as ratios."""
