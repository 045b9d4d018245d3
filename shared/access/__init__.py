"""Access to the processes: where they listen, which requests they accept, and the key that services share."""
