"""settings -> catalog, tables and their snapshots: what Iceberg's catalog answers."""
