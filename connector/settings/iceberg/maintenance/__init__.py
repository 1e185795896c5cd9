"""properties -> what keeps tables small: tasks and their schedules, and when a sink waits for them."""
