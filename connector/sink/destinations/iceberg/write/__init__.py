"""Folded changes of a task -> data files and delete files. On executors."""
