"""Keys of a batch -> data files and positions of their live rows, by one way or another."""
