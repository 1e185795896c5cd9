"""columns of events and tables -> schemas: Arrow, Iceberg and its JSON, and how a table follows its events. Pure."""
