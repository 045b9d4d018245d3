"""Plug-ins: distributions with entry points. They are found without an import, tried in a process of their own, then
used."""
