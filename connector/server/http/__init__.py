"""Applications -> ports that answer by HTTP."""
