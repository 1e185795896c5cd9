"""changes of a key -> which of them wins, by the positions in the source and in Kafka. Pure rules on columns."""
