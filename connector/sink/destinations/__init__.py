"""Where rows go: one package per destination behind the port `sink/model/destination.py`."""
