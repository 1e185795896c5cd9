"""One micro-batch as a Spark job: map tasks, shuffle by key, reduce tasks."""
