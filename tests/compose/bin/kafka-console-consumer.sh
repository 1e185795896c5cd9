#!/opt/icebridge/bin/python
"""--bootstrap-server HOST:PORT --topic NAME --from-beginning --timeout-ms N: the values, a line each."""
import sys

from confluent_kafka import Consumer

given = dict(zip(sys.argv[1:], sys.argv[2:]))
settings = {"group.id": "console", "enable.auto.commit": "false", "auto.offset.reset": "earliest", "log_level": 0}
consumer = Consumer({"bootstrap.servers": given["--bootstrap-server"], **settings})
consumer.subscribe([given["--topic"]])
while messages := consumer.consume(1000, timeout=int(given["--timeout-ms"]) / 1000):
    for message in messages:
        if message.error() is None:
            print("null" if message.value() is None else message.value().decode())
consumer.close()
