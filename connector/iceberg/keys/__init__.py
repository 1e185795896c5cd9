"""keys of changed rows -> bounds and ranges that leave out files which cannot hold them."""
