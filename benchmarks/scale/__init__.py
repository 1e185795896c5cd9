"""What grows -> what it costs: pairs of runs that differ in one thing, its tables checked like all others."""
