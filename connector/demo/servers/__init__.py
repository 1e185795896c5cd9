"""Real servers as child processes on free loopback ports, for the demo and the tests: Kafka, registry, OpenSearch."""
