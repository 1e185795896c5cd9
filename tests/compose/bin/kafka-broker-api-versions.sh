#!/opt/icebridge/bin/python
"""--bootstrap-server HOST:PORT: does it answer?"""
import sys

from confluent_kafka.admin import AdminClient

print(AdminClient({"bootstrap.servers": sys.argv[2], "log_level": 0}).list_topics(timeout=5).brokers)
