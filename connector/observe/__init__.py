"""How a run is seen from outside: logs and progress."""
