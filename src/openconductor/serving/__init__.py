"""Serving: a Conductor or a baseline behind OpenAI's and Anthropic's APIs, and MCP (extra ``serve``)."""
