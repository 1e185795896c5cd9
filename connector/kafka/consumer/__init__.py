"""Kafka's Fetch protocol on executors: offset ranges -> columns of records, without an object per record."""

from connector.kafka.consumer.assignment import PartitionAssignment, assign_ranges
from connector.kafka.consumer.consumer_records import ConsumerRecords

__all__ = ["ConsumerRecords", "PartitionAssignment", "assign_ranges"]
