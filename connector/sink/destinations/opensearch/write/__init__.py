"""rows and winners of a task -> documents, by bulk requests. On executors."""
