"""Version control: revisions of a git repository, and GitHub's REST interface."""
