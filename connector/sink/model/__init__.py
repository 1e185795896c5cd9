"""The values that pass between the steps of the sink, and the destination port."""
