"""How a run of the tests goes: its order, tiers and rounds, and what all kinds of tests use."""
