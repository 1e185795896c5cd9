"""jars.lock -> a Java runtime and verified jars in the cache."""
