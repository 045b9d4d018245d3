"""Every command block of the tutorial and of the how-to pages, run as it stands there."""
