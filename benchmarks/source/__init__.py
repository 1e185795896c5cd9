"""The producer's part of the benchmark: changes of a snapshot, the initial read published, an idle poll."""
