"""Serving: a Conductor or a baseline behind the OpenAI and Anthropic APIs (extra ``serve``)."""
