"""What is known of a project's nodes, gathered for those who look, and pages that show it."""
