"""What a run reports -> log lines and terminal progress."""
