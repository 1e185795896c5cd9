"""folded changes -> complete rows: values that an update did not send are taken from the row before it."""
