"""A batch -> the plan of its job."""
