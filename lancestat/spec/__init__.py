"""The declarations of users: YAML with positions, templates, validation, model, selection."""
