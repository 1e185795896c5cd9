"""Bytes of a fetch -> columns of records: batches, sections, headers. Pure; no I/O."""
