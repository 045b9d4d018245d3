"""The `mathrag` command."""
