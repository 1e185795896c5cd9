"""Kafka's Fetch protocol on executors: offset ranges -> columns of records, without an object per record."""

from connector.kafka.consumer.assignment import Feed, feed
from connector.kafka.consumer.fetcher import Chunk

__all__ = ["Chunk", "Feed", "feed"]
