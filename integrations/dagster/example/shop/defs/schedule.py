"""Bring the tables and their statistics up to date every night."""

import dagster as dg

nightly = dg.ScheduleDefinition(
    name="nightly", target=dg.AssetSelection.all(), cron_schedule="0 3 * * *"
)
