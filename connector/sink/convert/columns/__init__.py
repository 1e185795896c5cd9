"""Fields of events <-> columns of tables: names matched, types compared, what a table lacks."""
