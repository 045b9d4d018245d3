"""What rules do for retrieval and answers on two knowledge graphs, from nothing: ``make reproduce-rules``."""
