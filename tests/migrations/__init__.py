"""Schemas: as released, from one version to the next, and the same on both stores."""
