"""Who may call which process: API keys, the key that services share, and where a process may listen."""
