"""The API as tools of the Model Context Protocol."""
