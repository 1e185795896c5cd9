"""settings -> a Spark session, its Python workers and the errors of its tasks."""
