"""changes of a key -> the one that wins, with unavailable values filled."""
