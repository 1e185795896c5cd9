"""another connector's traces -> whether its offsets may be taken over."""
