"""Plans and runs of nodes: stages, scheduler, records, plan files."""
