"""Offsets of a batch -> the offsets at which no transaction of the source is cut."""
