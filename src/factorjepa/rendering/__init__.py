"""Latents to RGB: transport, decoders, what the decoded future is worth, and why it fails."""
