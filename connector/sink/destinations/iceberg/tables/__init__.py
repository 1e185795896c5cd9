"""The tables of a sink: made, evolved, checked, and where each of them stands. On the driver."""
