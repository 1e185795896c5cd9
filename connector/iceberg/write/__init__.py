"""Arrow batches -> data files, delete files and deletion vectors."""
