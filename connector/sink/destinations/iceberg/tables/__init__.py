"""The tables of a sink: created, evolved and checked, with the offsets of each. On the driver."""
