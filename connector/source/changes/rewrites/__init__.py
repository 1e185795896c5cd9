"""A rewritten data file and its successors -> the rows that really changed."""
