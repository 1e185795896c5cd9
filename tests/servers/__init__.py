"""Servers that tests start, and what stands before one."""
