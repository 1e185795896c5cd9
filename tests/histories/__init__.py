"""Tables, and what happens to them."""
