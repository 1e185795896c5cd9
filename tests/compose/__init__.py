"""docker/compose.yaml, brought up and used: `make compose-test`."""
