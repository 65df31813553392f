"""What a change of the specs means, for those who review it."""
