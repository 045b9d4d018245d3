"""Checks of everything that a job needs: readiness runs the cheap ones, `mathrag doctor` all."""
