"""JSON texts of one type -> Arrow columns, without a step per message."""
