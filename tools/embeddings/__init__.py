"""Making and tuning of static embeddings."""
