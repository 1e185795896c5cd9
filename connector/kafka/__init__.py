"""Kafka: the cluster, single records by reference, dead letters, group offsets."""
