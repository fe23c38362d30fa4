"""Adaptation methods: what each one trains, under which objective, and why it is compared."""

from .method import Method, Stage
from .registry import METHODS, known, method_named

__all__ = ["METHODS", "Method", "Stage", "known", "method_named"]
