"""folded changes -> whole rows: with values that an update did not send, from the row of the key before."""
