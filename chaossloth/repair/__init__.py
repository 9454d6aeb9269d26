"""Repair candidates: typed intents turned into new source text; nothing here executes the subject."""
