"""Training: from windows and a backbone to weights."""
