"""Protobuf by registry: schema texts -> definitions -> codec and Connect schema -> columns."""
