"""topics -> three contenders -> figures: the benchmark behind `make bench` (`python -m benchmarks`)."""
