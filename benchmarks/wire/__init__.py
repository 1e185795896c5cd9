"""Wire formats: what reading and writing events costs in each, as ratios to JSON without schema blocks."""
