"""Serving: a Conductor or a baseline behind the APIs that clients already speak (extra ``serve``).

In: HTTP requests of OpenAI's Chat Completions and Responses and of Anthropic's Messages. Out:
answers and streams whose every step, cost and failure is visible, and an episode in the journal for
each.
"""
