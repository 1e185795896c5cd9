"""Credentials -> tokens that brokers take."""
