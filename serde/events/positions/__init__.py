"""events -> where they stand in their source's log, and whose they are; knows nothing of rows."""
