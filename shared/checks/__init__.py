"""Checks of `mathrag doctor` that several services run, each with its own settings and on its own machine."""
