"""`consumer.*`, `producer.*`, topics, batches, errors -> how Kafka is read and written."""
