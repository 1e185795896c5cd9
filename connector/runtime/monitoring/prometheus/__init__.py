"""Reports and declared series -> what Prometheus scrapes."""
