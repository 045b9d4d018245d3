"""Jobs as many clients at once ask for them: what was read for one is shared with the others."""
