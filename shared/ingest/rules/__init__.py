"""Read and write rules as text, line by line: AMIE's TSV, TLogic's JSON, AnyBURL's text and this project's format."""
