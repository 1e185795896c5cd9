"""files and a summary -> one snapshot, landed once: attempts, offsets in summaries, truncates."""
