"""What the user declares: YAML with positions, templates, validation, model, selection."""
