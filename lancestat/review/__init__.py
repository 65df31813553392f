"""Reviews of what a change of the specs means."""
