"""Middleware in front of the API's routes: authentication, authorisation, and limits on concurrent requests."""
