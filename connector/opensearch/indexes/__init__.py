"""schemas -> index names, mappings, templates and aliases."""
