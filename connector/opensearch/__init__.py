"""Documents, their ids and mappings, bulk requests, and the indexes that hold them."""
