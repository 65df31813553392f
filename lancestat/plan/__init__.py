"""Actions and reasons; the planner; how a plan is rendered."""
