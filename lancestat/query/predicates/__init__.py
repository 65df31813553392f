"""Row filters: as values, as Lance's SQL, as text."""
