"""Plug-ins: distributions with entry points. They are found without an import, tried in their own process, then
used."""
