"""equality deletes -> deletion vectors or position deletes, in one commit that changes no row."""
