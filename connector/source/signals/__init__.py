"""Signals from users -> snapshots on demand: channels that are read, and what becomes of each signal."""
