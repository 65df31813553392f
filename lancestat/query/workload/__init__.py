"""What queries do with declared tables, and the change of the YAML that it asks for."""
