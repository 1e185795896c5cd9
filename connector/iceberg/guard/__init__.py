"""A table that others rewrite -> the same, with every equality delete that its rows still need."""
