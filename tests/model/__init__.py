"""What is right, in plain Python."""
