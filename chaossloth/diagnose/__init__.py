"""Diagnosis: the pattern behind a failing pair of accesses and the repairs that it allows."""
