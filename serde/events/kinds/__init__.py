"""decoded messages -> which are change events, of which kind and operation, in whichever form they came."""
