"""A steady load for as long as told -> samples of a sink, its table and its process, and whether they stay flat."""
