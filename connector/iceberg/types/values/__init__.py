"""values of one type -> the same as another: exactly, leniently, as Spark or a file can have them."""
