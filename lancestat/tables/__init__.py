"""Statistics of tables: kernels, partials, the manifest, and the plan and run of a table."""
