"""Actions and reasons, the planners, and plan files."""
