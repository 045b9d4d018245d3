"""How sure a figure is, and whether two differ. Pure: counts in, figures out; scipy computes, and is imported late."""
