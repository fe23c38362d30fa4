"""FactorJEPA: world models for crowded, chaotic streets, from footage to report."""

__version__ = "0.1.0"
