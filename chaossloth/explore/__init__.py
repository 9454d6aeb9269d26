"""Executions, strategies, schedules and the search over them."""
