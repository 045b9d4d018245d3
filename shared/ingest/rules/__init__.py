"""Rules as text: AMIE's TSV, TLogic's JSON, AnyBURL's text and our own file, read line by line and written."""
