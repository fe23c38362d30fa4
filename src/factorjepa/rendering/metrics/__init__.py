"""Frozen RGB evaluators: frames in, numbers out. They know no model and no corpus, and nothing is trained with them."""
