"""Endpoints of OpenAI's API under `/openai/v1`, for clients that support no other API."""
