"""keys -> what the table holds of them: rows, unavailable values, late events, deleted keys."""
