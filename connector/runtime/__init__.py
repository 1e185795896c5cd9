"""this machine -> Java, jars and our own packages, ready to start servers and Spark with."""
