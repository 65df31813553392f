"""Reports of all that is known of a project's nodes, and the pages that show them."""
