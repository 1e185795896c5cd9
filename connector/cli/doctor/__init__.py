"""`icebridge doctor`: what a connector needs, tried one by one."""
