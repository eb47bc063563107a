"""A chat-completions server on loopback that fails on purpose: see ``server``."""
