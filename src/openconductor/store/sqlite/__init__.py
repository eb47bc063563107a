"""What only a store in a SQLite file has: its schema and locks, and the removal of old episodes."""
