"""Connectors and commands that tests run, in processes of their own and in the tests' process; and their metrics."""
