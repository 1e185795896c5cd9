"""a snapshot -> Arrow rows: planning, whole files, rows at positions."""
