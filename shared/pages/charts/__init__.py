"""Charts of the live pages: SVG that fills its column and takes its colours from the theme."""
