"""change events -> the images of their rows, and what these leave out: cells, patches, values that were not sent."""
