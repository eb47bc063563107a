"""What replicas of the server share."""
