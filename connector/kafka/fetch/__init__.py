"""Kafka's Fetch protocol on executors: offset ranges -> columns of records, without an object per record."""

from connector.kafka.fetch.feed import Feed, feed
from connector.kafka.fetch.reading import Chunk

__all__ = ["Chunk", "Feed", "feed"]
