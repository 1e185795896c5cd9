"""What a run reports -> log lines, a terminal's status line, metrics, lineage and telemetry."""
