"""empty folders -> real servers on loopback, for the demo and the tests."""
