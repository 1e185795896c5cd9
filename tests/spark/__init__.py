"""Ways to run on Spark."""
