"""What a predictor knows, measured against frozen evaluators: one pass over the clips feeds all diagnostics."""
