"""Faces of an `evidence.Investigation`: terminal, JSON, progress while it is made."""
