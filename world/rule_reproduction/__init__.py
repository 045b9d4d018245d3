"""Measures from scratch what rules do for retrieval and answers on two knowledge graphs: ``make reproduce-rules``."""
