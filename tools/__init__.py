"""What no installation contains: benchmarks, training of the shipped models, tuning, and reproductions."""
