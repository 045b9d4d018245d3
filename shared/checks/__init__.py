"""What the services look at for `mathrag doctor`, each with its own settings and from its own machine."""
