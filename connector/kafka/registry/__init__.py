"""Ids <-> schemas: the registries of schemas, whoever made them."""
